//! Reads a condition. Errors name the column, counted from 1 in characters.

use std::str::FromStr;

use record::{Direction, Half};

use super::{Condition, Dimension, Operator, Quantity, Selector, Side};

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {cause}")]
pub struct ParseError {
    /// The column of the fault, counted from 1.
    pub column: usize,
    /// The fault.
    pub cause: String,
}

/// A word of a condition.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    /// A name, keyword or unit.
    Word(String),
    /// A name in quotes, which is never a keyword.
    Quoted(String),
    Dot,
    Times,
    Operator(Operator),
    End,
}

impl Token {
    fn describe(&self) -> String {
        match self {
            Self::Number(value) => format!("`{value}`"),
            Self::Word(word) => format!("`{word}`"),
            Self::Quoted(name) => format!("`\"{name}\"`"),
            Self::Dot => "`.`".to_owned(),
            Self::Times => "`*`".to_owned(),
            Self::Operator(Operator::Less) => "`<`".to_owned(),
            Self::Operator(Operator::LessOrEqual) => "`<=`".to_owned(),
            Self::Operator(Operator::Greater) => "`>`".to_owned(),
            Self::Operator(Operator::GreaterOrEqual) => "`>=`".to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

impl FromStr for Condition {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0 };
        let (left, left_column) = parser.side()?;
        let (token, column) = parser.next();
        let Token::Operator(operator) = token else {
            return Err(error(column, format!("{} is not <, <=, > or >=", token.describe())));
        };
        let (right, right_column) = parser.side()?;
        let (token, column) = parser.next();
        if token != Token::End {
            return Err(error(column, format!("{} follows the end of the condition", token.describe())));
        }
        check(&left, &right, right_column)?;
        check(&right, &left, left_column)?;
        Ok(Self { text: text.trim().to_owned(), left, operator, right })
    }
}

/// Checks that the `other` side can be compared with this one.
fn check(side: &Side, other: &Side, column: usize) -> Result<(), ParseError> {
    let Side::Measured { selector, .. } = side else {
        return match other {
            Side::Measured { .. } => Ok(()),
            _ => Err(error(column, "one side must be a measured value: ROUTE.read or ROUTE.write")),
        };
    };
    let wanted = selector.quantity.dimension();
    let names: Vec<&str> = wanted.units().iter().map(|(name, _)| *name).collect();
    match other {
        Side::Number { dimension: None, .. } if wanted == Dimension::Time => {
            Err(error(column, format!("a latency needs a unit: {}", names.join(", "))))
        }
        Side::Number { dimension: Some(found), .. } if *found != wanted => {
            let (found, quantity) = (found.name(), selector.quantity.name());
            Err(error(column, format!("{found} is compared with {quantity}, in {}", names.join(", "))))
        }
        Side::Measured { selector: other, .. } if other.quantity.dimension() != wanted => {
            let quantity = selector.quantity.name();
            Err(error(column, format!("{} cannot be compared with {quantity}", other.quantity.name())))
        }
        _ => Ok(()),
    }
}

fn error(column: usize, cause: impl Into<String>) -> ParseError {
    ParseError { column, cause: cause.into() }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> (Token, usize) {
        self.tokens.get(self.at).or(self.tokens.last()).cloned().unwrap_or((Token::End, 1))
    }

    fn next(&mut self) -> (Token, usize) {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// A side, and the column at which it begins.
    fn side(&mut self) -> Result<(Side, usize), ParseError> {
        let (token, column) = self.peek();
        let Token::Number(number) = token else {
            let mut side = self.value()?;
            if self.peek().0 == Token::Times {
                self.next();
                let (token, column) = self.next();
                let Token::Number(times) = token else {
                    return Err(error(column, format!("{} is not a number", token.describe())));
                };
                side.multiply(times, column)?;
            }
            return Ok((side, column));
        };
        self.next();
        match self.peek() {
            (Token::Times, _) => {
                self.next();
                let mut side = self.value()?;
                side.multiply(number, column)?;
                Ok((side, column))
            }
            (Token::Word(unit), at) => {
                self.next();
                let (dimension, size) = unit_of(&unit).ok_or_else(|| error(at, unknown_unit(&unit)))?;
                Ok((Side::Number { value: number * size, dimension: Some(dimension) }, column))
            }
            _ => Ok((Side::Number { value: number, dimension: None }, column)),
        }
    }

    /// `baseline`, or a measured value.
    fn value(&mut self) -> Result<Side, ParseError> {
        let (token, column) = self.next();
        let route = match token {
            Token::Word(word) if word == "baseline" && self.peek().0 != Token::Dot => {
                return Ok(Side::Baseline { factor: 1.0 });
            }
            Token::Word(word) | Token::Quoted(word) => word,
            other => return Err(error(column, format!("{} is not the name of a route", other.describe()))),
        };
        let mut parts: Vec<(Token, usize)> = Vec::new();
        while self.peek().0 == Token::Dot {
            self.next();
            let (token, column) = self.next();
            if !matches!(token, Token::Word(_) | Token::Quoted(_)) {
                return Err(error(column, format!("{} is not a name", token.describe())));
            }
            parts.push((token, column));
        }
        let (_, end) = self.peek();
        Ok(Side::Measured { factor: 1.0, selector: selector(route, column, parts, end)? })
    }
}

/// Reads what follows the route: `[.WORKLOAD] [.raw | .paced] .read | .write [.QUANTITY]`.
fn selector(
    route: String,
    column: usize,
    parts: Vec<(Token, usize)>,
    end: usize,
) -> Result<Selector, ParseError> {
    let mut parts = parts.into_iter().peekable();
    let (mut workload, mut half) = (None, None);
    let direction = loop {
        let Some((token, at)) = parts.next() else {
            let workload = workload.map_or_else(String::new, |name| format!(".{name}"));
            return Err(error(end, format!("`{route}{workload}` needs .read or .write")));
        };
        match token {
            Token::Word(word) if word == "read" => break Direction::Read,
            Token::Word(word) if word == "write" => break Direction::Write,
            Token::Word(word) if half.is_none() && (word == "raw" || word == "paced") => {
                half = Some(if word == "raw" { Half::Raw } else { Half::Paced });
            }
            Token::Word(name) | Token::Quoted(name) if workload.is_none() && half.is_none() => {
                workload = Some(name);
            }
            other => return Err(error(at, format!("{} is neither read nor write", other.describe()))),
        }
    };
    let mut quantity = Quantity::GbytesPerS;
    if let Some((token, at)) = parts.next() {
        let named = Quantity::ALL.iter().find(|(name, _)| token == Token::Word((*name).to_owned()));
        let names: Vec<&str> = Quantity::ALL.iter().map(|(name, _)| *name).collect();
        let unknown = || error(at, format!("{} is none of {}", token.describe(), names.join(", ")));
        quantity = named.ok_or_else(unknown)?.1;
    }
    if let Some((token, at)) = parts.next() {
        return Err(error(at, format!("{} follows the quantity", token.describe())));
    }
    Ok(Selector { route, workload, half, direction, quantity, column })
}

impl Side {
    fn multiply(&mut self, times: f64, column: usize) -> Result<(), ParseError> {
        if times <= 0.0 {
            return Err(error(column, "a factor must be above 0"));
        }
        match self {
            Self::Number { value, .. } => *value *= times,
            Self::Baseline { factor } | Self::Measured { factor, .. } => *factor *= times,
        }
        Ok(())
    }
}

const DIMENSIONS: [Dimension; 3] = [Dimension::Speed, Dimension::Rate, Dimension::Time];

fn unit_of(unit: &str) -> Option<(Dimension, f64)> {
    let units = DIMENSIONS.iter().flat_map(|it| it.units().iter().map(|(name, size)| (*it, *name, *size)));
    units.into_iter().find(|(_, name, _)| *name == unit).map(|(dimension, _, size)| (dimension, size))
}

fn unknown_unit(unit: &str) -> String {
    let names = DIMENSIONS.iter().flat_map(|dimension| dimension.units()).map(|(name, _)| *name);
    format!("`{unit}` is none of the units {}", names.collect::<Vec<_>>().join(", "))
}

fn tokens(text: &str) -> Result<Vec<(Token, usize)>, ParseError> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    let character = |at: usize| characters.get(at).copied();
    while let Some(first) = character(at) {
        let column = at + 1;
        let run = |from: usize, belongs: &dyn Fn(char) -> bool| -> String {
            characters.iter().skip(from).take_while(|it| belongs(**it)).collect()
        };
        let token = match first {
            ' ' | '\t' => {
                at += 1;
                continue;
            }
            '.' => Token::Dot,
            '*' => Token::Times,
            '<' if character(at + 1) == Some('=') => Token::Operator(Operator::LessOrEqual),
            '>' if character(at + 1) == Some('=') => Token::Operator(Operator::GreaterOrEqual),
            '<' => Token::Operator(Operator::Less),
            '>' => Token::Operator(Operator::Greater),
            '"' => {
                let name = run(at + 1, &|it| it != '"');
                at += name.chars().count() + 2;
                if character(at - 1) != Some('"') || name.is_empty() {
                    return Err(error(column, "a name in quotes needs its end, and a character between"));
                }
                tokens.push((Token::Quoted(name), column));
                continue;
            }
            first if first.is_ascii_digit() => {
                let number = run(at, &|it| it.is_ascii_digit() || it == '.');
                let value = number.parse().map_err(|_| error(column, format!("`{number}` is no number")))?;
                at += number.len();
                tokens.push((Token::Number(value), column));
                continue;
            }
            first if first.is_alphabetic() || first == '_' => {
                let belongs = |it: char| it.is_alphanumeric() || matches!(it, '_' | '-' | '/');
                let word = run(at, &belongs);
                at += word.chars().count();
                tokens.push((Token::Word(word), column));
                continue;
            }
            other => {
                let hint = "; a name with other characters is put in double quotes";
                return Err(error(column, format!("`{other}` belongs to no condition{hint}")));
            }
        };
        let is_long = matches!(token, Token::Operator(Operator::LessOrEqual | Operator::GreaterOrEqual));
        at += if is_long { 2 } else { 1 };
        tokens.push((token, column));
    }
    tokens.push((Token::End, characters.len() + 1));
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Condition {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn selector_of(text: &str) -> Selector {
        match parse(text).left {
            Side::Measured { selector, .. } => selector,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_value_has_a_route_and_a_direction_and_may_have_more() {
        let short = selector_of("tcp-mp.read < 0.9 * baseline");
        assert_eq!((short.route.as_str(), short.workload, short.half), ("tcp-mp", None, None));
        assert_eq!((short.direction, short.quantity), (Direction::Read, Quantity::GbytesPerS));
        let long = selector_of("tcp.mix-1m.paced.write.p99 > 20 ms");
        assert_eq!((long.workload.as_deref(), long.half), (Some("mix-1m"), Some(Half::Paced)));
        assert_eq!((long.direction, long.quantity), (Direction::Write, Quantity::P99));
        let quoted = selector_of("\"10 GbE\".\"read\".read.iops < 1 kIOPS");
        assert_eq!((quoted.route.as_str(), quoted.workload.as_deref()), ("10 GbE", Some("read")));
        assert_eq!(selector_of("tcp.raw.read < 1").half, Some(Half::Raw));
        assert_eq!(selector_of("baseline.read < 1").route, "baseline", "a route may have this name");
    }

    #[test]
    fn numbers_are_in_the_base_unit_of_their_dimension() {
        let number = |text: &str| match parse(text).right {
            Side::Number { value, .. } => value,
            other => panic!("{other:?}"),
        };
        assert_eq!(number("tcp.read < 2.5"), 2.5);
        assert_eq!(number("tcp.read < 2.5GB/s"), 2.5);
        assert_eq!(number("tcp.read < 20 Gbit/s"), 2.5);
        assert_eq!(number("tcp.read.iops < 100kIOPS"), 100_000.0);
        assert_eq!(number("tcp.read.p50 >= 1.5 ms"), 1500.0);
    }

    #[test]
    fn a_factor_stands_on_either_side_of_its_value() {
        let before = parse("tcp.read < 0.9 * baseline").right;
        assert_eq!(before, Side::Baseline { factor: 0.9 });
        assert_eq!(parse("tcp.read<baseline*0.9").right, before);
        assert!(parse("0.9*baseline > tcp.read").needs_baseline());
        assert!(!parse("tcp-mp.read < 3 * tcp.read").needs_baseline());
    }

    #[test]
    fn errors_name_the_column() {
        for (text, column, cause) in [
            ("", 1, "the end is not the name"),
            ("tcp", 4, "`tcp` needs .read or .write"),
            ("tcp < 1", 5, "`tcp` needs .read or .write"),
            ("tcp.raed < 1", 10, "`tcp.raed` needs .read or .write"),
            ("tcp.read", 9, "the end is not <"),
            ("tcp.read = 1", 10, "`=` belongs to no condition"),
            ("tcp.read < ", 12, "the end is not the name"),
            ("tcp.read < 0.9 * baselin", 25, "`baselin` needs .read or .write"),
            ("tcp.read < 1 furlong", 14, "`furlong` is none of the units"),
            ("tcp.read < 1.2.3", 12, "`1.2.3` is no number"),
            ("tcp.read < 0 * baseline", 12, "above 0"),
            ("tcp.read.p98 < 1 ms", 10, "`p98` is none of gbytes_per_s"),
            ("tcp.read.p99 < 1", 16, "a latency needs a unit"),
            ("tcp.read < 1 ms", 12, "a latency is compared with gbytes_per_s"),
            ("1 < 2", 5, "one side must be a measured value"),
            ("baseline < 2", 12, "one side must be a measured value"),
            ("tcp.read < tcp.read.p50", 12, "p50 cannot be compared"),
            ("tcp.a.b.read < 1", 7, "`b` is neither read nor write"),
            ("tcp.read < 1 < 2", 14, "`<` follows the end"),
            ("tcp.read.iops.p50 < 1", 15, "`p50` follows the quantity"),
            ("\"tcp.read < 1", 1, "a name in quotes needs its end"),
        ] {
            let error = text.parse::<Condition>().expect_err(text);
            assert_eq!(error.column, column, "{text}: {error}");
            assert!(error.cause.contains(cause), "{text}: {error}");
        }
    }
}
