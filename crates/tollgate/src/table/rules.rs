//! The rules a table decides by, and which of them are in force.

use tollgate_core::Rule;

/// Rules by number. A key remembers the number of the rule it was last charged by, and is converted when it
/// next meets another: changing a rule touches no key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Option<Rule>>, // the rule of number n stands at n - 1
    current: Vec<u16>,        // the number of the rule in force, by tier
    in_force: Vec<bool>,      // whether any tier has it, by number as the rules
    crowded_at: usize,        // as many rules are worth looking for some that nobody uses
}

/// One set of numbers in a table: a tier of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TierId(pub(crate) u32);

/// More rules, of all limiters of a table and their tiers, cannot be told apart. Fewer where this crate tests itself,
/// so that it gets there.
const MOST_RULES: usize = if cfg!(test) { 300 } else { u16::MAX as usize };

impl Rules {
    #[inline]
    pub(crate) fn current(&self, tier: TierId) -> u16 {
        self.current[tier.0 as usize]
    }

    #[inline]
    pub(crate) fn get(&self, number: u16) -> &Rule {
        self.rules[usize::from(number) - 1].as_ref().expect("a number that is in use")
    }

    /// Whether a tier is decided by the rule of this number.
    pub(crate) fn is_in_force(&self, number: u16) -> bool {
        self.in_force[usize::from(number) - 1]
    }

    /// Adds a tier.
    pub(crate) fn add_tier(&mut self, rule: Rule) -> Option<TierId> {
        let number = self.add(rule)?;
        self.current.push(number);
        self.in_force[usize::from(number) - 1] = true;
        Some(TierId((self.current.len() - 1) as u32))
    }

    /// Puts another rule in force for a tier.
    pub(crate) fn replace(&mut self, tier: TierId, rule: Rule) -> Option<()> {
        if *self.get(self.current(tier)) != rule {
            let number = self.add(rule)?;
            let before = std::mem::replace(&mut self.current[tier.0 as usize], number);
            // Every tier has a number of its own.
            self.in_force[usize::from(before) - 1] = false;
            self.in_force[usize::from(number) - 1] = true;
        }
        Some(())
    }

    /// Whether no number is free, and many stand for rules that are not in force.
    pub(crate) fn is_crowded(&self) -> bool {
        let full = self.rules.iter().all(Option::is_some);
        full && (self.rules.len() >= self.crowded_at.max(2 * self.current.len() + 16) || self.is_full())
    }

    /// Frees the numbers of rules that are neither in force nor `used` by a key.
    pub(crate) fn forget_unused(&mut self, used: impl Fn(u16) -> bool) {
        for i in 0..self.rules.len() {
            let number = (i + 1) as u16;
            if !self.in_force[i] && !used(number) {
                self.rules[i] = None;
            }
        }
        // Where little was found, looking again after each change would be in vain.
        self.crowded_at = 2 * self.rules.iter().flatten().count();
    }

    /// Whether no more can be told apart, and none is free.
    pub(crate) fn is_full(&self) -> bool {
        self.rules.len() == MOST_RULES && self.rules.iter().all(Option::is_some)
    }

    fn add(&mut self, rule: Rule) -> Option<u16> {
        let place = match self.rules.iter().position(Option::is_none) {
            Some(place) => place,
            None if self.rules.len() < MOST_RULES => {
                self.rules.push(None);
                self.in_force.push(false);
                self.rules.len() - 1
            }
            None => return None,
        };
        self.rules[place] = Some(rule);
        Some((place + 1) as u16)
    }
}
