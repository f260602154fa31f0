//! Clients by number.

use std::collections::HashMap;

/// Clients, numbered in the order they came in.
#[derive(Debug, Default)]
pub struct Clients {
    numbers: HashMap<Box<[u8]>, u32>,
}

impl Clients {
    /// The number of a client, which is given one if it has none.
    ///
    /// # Panics
    ///
    /// After four thousand million of them.
    pub fn number(&mut self, client: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(client) {
            return *number;
        }
        let number = u32::try_from(self.numbers.len()).expect("fewer than four thousand million clients");
        self.numbers.insert(client.into(), number);
        number
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Names by number.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.len()];
        for (name, number) in &self.numbers {
            names[*number as usize] = String::from_utf8_lossy(name).into_owned();
        }
        names
    }
}
