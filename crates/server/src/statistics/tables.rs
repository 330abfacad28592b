//! Counters by program and procedure: a program gets a table of all its procedures with its first
//! call.

/// The names of a program's procedures, by number.
pub(crate) type Names = &'static [&'static str];

/// A procedure of a served program, as a position in a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    /// The position of the program among the served programs.
    program: u8,
    procedure: u8,
    names: Names,
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        // The names follow from the program.
        (self.program, self.procedure) == (other.program, other.procedure)
    }
}

impl Eq for Slot {}

impl Slot {
    /// The slot of a procedure by number, in the program with this position and these procedure
    /// names.
    pub fn new(program: usize, names: Names, procedure: u32) -> Option<Self> {
        let procedure = u8::try_from(procedure).ok().filter(|number| usize::from(*number) < names.len())?;
        Some(Self { program: u8::try_from(program).ok()?, procedure, names })
    }

    /// The name in the RFC; names of MOUNT procedures have a prefix.
    pub fn name(self) -> &'static str {
        self.names.get(usize::from(self.procedure)).copied().unwrap_or("?")
    }
}

#[derive(Debug, Clone)]
struct Table<T> {
    names: Names,
    entries: Box<[T]>,
}

/// One table for each program, in the order of registration.
#[derive(Debug, Clone)]
pub(super) struct Tables<T>(Vec<Table<T>>);

impl<T> Default for Tables<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> Tables<T> {
    /// The entry of a procedure.
    #[inline]
    pub fn entry(&mut self, slot: Slot) -> Option<&mut T> {
        let program = usize::from(slot.program);
        if self.0.get(program).is_none_or(|table| table.entries.is_empty()) {
            self.make(program, slot.names);
        }
        self.0.get_mut(program)?.entries.get_mut(usize::from(slot.procedure))
    }

    /// The entry of a procedure of a program that was called.
    pub fn existing(&mut self, slot: Slot) -> Option<&mut T> {
        self.0.get_mut(usize::from(slot.program))?.entries.get_mut(usize::from(slot.procedure))
    }

    #[cold]
    fn make(&mut self, program: usize, names: Names) {
        while self.0.len() <= program {
            self.0.push(Table { names: &[], entries: Box::default() });
        }
        if let Some(table) = self.0.get_mut(program) {
            *table = Table { names, entries: names.iter().map(|_| T::default()).collect() };
        }
    }

    /// All entries of programs that were called, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &T)> {
        self.0.iter().flat_map(|table| table.names.iter().copied().zip(&table.entries))
    }

    /// All entries of programs that were called, with their slots.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, &T)> {
        (0..).zip(&self.0).flat_map(|(program, table)| {
            let names = table.names;
            (0..)
                .zip(&table.entries)
                .map(move |(procedure, entry)| (Slot { program, procedure, names }, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_stand_in_their_order_whichever_is_called_first() {
        let (first, second): (Names, Names) = (&["A", "B"], &["C"]);
        let mut tables = Tables::<u32>::default();
        *tables.entry(Slot::new(1, second, 0).unwrap()).unwrap() += 3;
        assert!(tables.iter().eq([("C", &3)]));
        *tables.entry(Slot::new(0, first, 1).unwrap()).unwrap() += 2;
        assert!(tables.iter().eq([("A", &0), ("B", &2), ("C", &3)]));
        assert!(tables.slots().map(|(slot, _)| slot.name()).eq(["A", "B", "C"]));
    }

    #[test]
    fn a_number_without_a_procedure_has_no_slot() {
        let names: Names = &["A", "B"];
        assert_eq!(Slot::new(0, names, 1).unwrap().name(), "B");
        assert_eq!([2, 256, u32::MAX].map(|procedure| Slot::new(0, names, procedure)), [None; 3]);
    }
}
