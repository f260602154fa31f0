//! The store that is right by definition: an oracle for every key.

use super::{Line, Store};
use crate::answer::Verdict;
use crate::oracle::{Oracle, Several};
use std::collections::HashMap;

/// Keeps an oracle for every limit and key, for ever.
#[derive(Debug, Default)]
pub struct OracleStore {
    keys: HashMap<(String, String), Box<dyn Oracle>>,
}

impl Store for OracleStore {
    fn decide(&mut self, now: u64, plan: &[Line]) -> Verdict {
        let name = |line: &Line| (line.limit.clone(), line.key.clone());
        // Taken out and put back, because several are changed at once.
        let mut oracles: Vec<_> = plan
            .iter()
            .map(|line| self.keys.remove(&name(line)).unwrap_or_else(|| line.rule.oracle()))
            .collect();
        let costs: Vec<_> = plan.iter().map(|line| line.cost).collect();
        let mut limits: Vec<_> = oracles.iter_mut().map(|oracle| &mut **oracle as &mut dyn Oracle).collect();
        let verdict = Several::decide(&mut limits, now, &costs);
        self.keys.extend(plan.iter().map(name).zip(oracles));
        verdict
    }
}
