//! Lines of text with optional colour, whose content cannot control the terminal.

/// The emphasis of a piece of text, if colour is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Red,
    Blue,
    Yellow,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Red => "1;31",
            Style::Blue => "34",
            Style::Yellow => "33",
        }
    }
}

/// The number of columns of a text.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Whether a character moves the cursor, changes colours or reverses the direction of the text.
fn is_command(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text written so far.
pub(super) struct Canvas {
    done: String,
    /// The current line. Trailing blanks are held back in `blanks` until something follows.
    line: String,
    blanks: usize,
    columns: usize,
    ansi: bool,
}

impl Canvas {
    pub(super) fn new(columns: usize, ansi: bool) -> Self {
        Self { done: String::new(), line: String::new(), blanks: 0, columns, ansi }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Adds a piece to the line. Characters that would control the terminal become question marks.
    pub(super) fn put(&mut self, style: Style, text: &str) {
        let safe: String = text.chars().map(|it| if is_command(it) { '?' } else { it }).collect();
        let words = safe.trim_end_matches(' ');
        if !words.is_empty() {
            self.line.push_str(&" ".repeat(std::mem::take(&mut self.blanks)));
            match self.ansi && style != Style::Plain {
                true => self.line.push_str(&format!("\u{1b}[{}m{words}\u{1b}[0m", style.code())),
                false => self.line.push_str(words),
            }
        }
        self.blanks += safe.len() - words.len();
    }

    /// Ends the line, without trailing blanks.
    pub(super) fn end_line(&mut self) {
        self.done.push_str(&std::mem::take(&mut self.line));
        self.done.push('\n');
        self.blanks = 0;
    }

    /// Writes a text after a lead, wrapped at the canvas' width; further lines are indented to the
    /// start of the text.
    pub(super) fn paragraph(&mut self, style: Style, indent: usize, lead: &str, text: &str) {
        let hang = if lead.is_empty() { indent + 2 } else { indent + width(lead) };
        self.put(Style::Plain, &format!("{:indent$}", ""));
        self.put(style, lead);
        let mut column = indent + width(lead);
        let mut is_first = true;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let gap = usize::from(!is_first);
            if !is_first && column + gap + width(word) > self.columns {
                self.end_line();
                self.put(Style::Plain, &" ".repeat(hang));
                column = hang;
            } else if gap > 0 {
                self.put(Style::Plain, " ");
                column += gap;
            }
            column = self.word(style, word, column, hang);
            is_first = false;
        }
        self.end_line();
    }

    /// Writes a word, broken if it is longer than a line, and returns the column after it.
    fn word(&mut self, style: Style, word: &str, mut column: usize, hang: usize) -> usize {
        let mut rest: Vec<char> = word.chars().collect();
        while column + rest.len() > self.columns && self.columns > hang {
            let after = rest.split_off(self.columns.saturating_sub(column).min(rest.len()));
            self.put(style, &rest.iter().collect::<String>());
            self.end_line();
            self.put(Style::Plain, &" ".repeat(hang));
            (rest, column) = (after, hang);
        }
        self.put(style, &rest.iter().collect::<String>());
        column + rest.len()
    }

    /// Returns all lines.
    pub(super) fn finish(mut self) -> String {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.done
    }
}
