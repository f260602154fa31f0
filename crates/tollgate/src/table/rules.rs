//! The rules a table decides by, and which of them are in force.

use tollgate_core::adaptive::{Pace, VirtualClock};
use tollgate_core::{Rule, Timestamp};

use super::paced::Paced;
use crate::{Numbers, Shed};

/// Rules by number. A key remembers the number of the rule it was last charged by, and is converted when it
/// next meets another: changing a rule touches no key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Option<Rule>>, // at their paces; that of number n stands at n - 1, as does what follows
    made: Vec<Made>,          // of no meaning where there is no rule
    free: Vec<u16>,           // the numbers that stand for no rule, so that none need be looked for
    current: Vec<u16>,        // the number of the rule in force, by tier; 0 where there is no tier
    free_tiers: Vec<TierId>,  // where there is none
    clocks: Clocks,           // none until a pace was first changed
    crowded_at: usize,        // as many rules are worth looking for some that nobody uses
}

/// The time of each shed class, in a box: the way of most requests only looks whether there is any.
type Clocks = Option<Box<[VirtualClock; 3]>>;

/// What a rule was made of, and for whom.
#[derive(Clone, Copy, Debug)]
struct Made {
    numbers: Numbers,
    tier: TierId,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    InForce,
    /// Its tier has another by now, under which its keys may still be limited.
    Replaced,
    /// Its tier is gone, and nobody can ask for its keys again.
    Gone,
}

/// One set of numbers in a table: a tier of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TierId(u32);

impl TierId {
    /// Of no limiter.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

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
        self.rules[place(number)].as_ref().expect("a number that is in use")
    }

    /// Whether any class ever went at another pace than full.
    #[inline]
    pub(crate) const fn are_paced(&self) -> bool {
        self.clocks.is_some()
    }

    /// The rule of a number, with the time of its class.
    #[inline]
    pub(crate) fn paced(&self, number: u16) -> Paced<'_> {
        let rule = self.get(number);
        let Some(clocks) = &self.clocks else { return Paced { rule, told: rule, clock: None } };
        let Numbers { rule: told, shed } = &self.made[place(number)].numbers;
        let is_real = *shed == Shed::Exempt || !told.has_schedule();
        Paced { rule, told, clock: (!is_real).then(|| &clocks[*shed as usize]) }
    }

    /// Changes the paces of the shed classes from `now` on. None where they are what they were.
    pub(crate) fn set_paces(&mut self, paces: [Pace; 3], now: Timestamp) -> Option<()> {
        let clocks = self.clocks.clone().unwrap_or_default();
        if paces == clocks.each_ref().map(VirtualClock::pace) {
            return None;
        }
        let clocks = self.clocks.insert(clocks);
        clocks.iter_mut().zip(paces).for_each(|(clock, pace)| clock.set_pace(now, pace));
        for (rule, Made { numbers, .. }) in self.rules.iter_mut().zip(&self.made) {
            *rule = rule.and(Some(numbers.rule.at_pace(paces[numbers.shed as usize])));
        }
        Some(())
    }

    /// A rule as it is decided by at the pace of its class.
    fn at_pace(&self, numbers: Numbers) -> Rule {
        let pace = self.clocks.as_ref().map_or(Pace::FULL, |clocks| clocks[numbers.shed as usize].pace());
        numbers.rule.at_pace(pace)
    }

    /// What a tier was told to decide by.
    pub(crate) fn numbers(&self, tier: TierId) -> Numbers {
        self.made[place(self.current(tier))].numbers
    }

    /// Whether the rule of this number was that of this tier, which has another one now.
    pub(crate) fn is_replaced(&self, number: u16, tier: TierId) -> bool {
        let Made { tier: of, standing, .. } = self.made[place(number)];
        standing == Standing::Replaced && of == tier
    }

    /// Whether a tier is decided by the rule of this number.
    pub(crate) fn is_in_force(&self, number: u16) -> bool {
        self.made[place(number)].standing == Standing::InForce
    }

    /// Whether nobody can ask again for a key that was last charged by the rule of this number. A permit of it may
    /// still be given back.
    pub(crate) fn is_gone(&self, number: u16) -> bool {
        self.made[place(number)].standing == Standing::Gone
    }

    /// Adds tiers. None where there are not as many numbers left.
    pub(crate) fn add_tiers(&mut self, tiers: &[Numbers]) -> Option<Vec<TierId>> {
        tiers.iter().map(|numbers| self.add_tier(*numbers)).collect()
    }

    fn add_tier(&mut self, numbers: Numbers) -> Option<TierId> {
        let tier = self.free_tiers.pop().unwrap_or_else(|| {
            self.current.push(0);
            TierId((self.current.len() - 1) as u32)
        });
        self.current[tier.0 as usize] = self.add(numbers, tier)?;
        Some(tier)
    }

    /// Removes tiers for which nobody can ask any more.
    pub(crate) fn remove_tiers(&mut self, tiers: &[TierId]) {
        tiers.iter().for_each(|tier| self.current[tier.0 as usize] = 0);
        self.free_tiers.extend(tiers);
        for made in &mut self.made {
            if self.current[made.tier.0 as usize] == 0 {
                made.standing = Standing::Gone;
            }
        }
    }

    /// How many of these tiers would get other numbers than they have.
    pub(crate) fn changed(&self, tiers: &[(TierId, Numbers)]) -> usize {
        tiers.iter().filter(|(tier, numbers)| self.numbers(*tier) != *numbers).count()
    }

    /// Puts other numbers in force for tiers. None where there is no place left for them.
    pub(crate) fn set_tiers(&mut self, tiers: &[(TierId, Numbers)]) -> Option<()> {
        tiers.iter().try_for_each(|(tier, numbers)| self.set_tier(*tier, *numbers))
    }

    fn set_tier(&mut self, tier: TierId, numbers: Numbers) -> Option<()> {
        if self.numbers(tier) != numbers {
            let number = self.add(numbers, tier)?;
            let before = std::mem::replace(&mut self.current[tier.0 as usize], number);
            // Every tier has a number of its own.
            self.made[place(before)].standing = Standing::Replaced;
        }
        Some(())
    }

    /// Whether `added` more rules need new numbers, and many stand for rules that are not in force.
    pub(crate) fn is_crowded(&self, added: usize) -> bool {
        let tiers = self.current.len() - self.free_tiers.len() + added;
        let grown = self.grown(added);
        grown > self.rules.len() && (grown > self.crowded_at.max(2 * tiers + 16) || self.is_full(added))
    }

    /// Frees the numbers of rules that are neither in force nor `used` by a key.
    pub(crate) fn forget_unused(&mut self, used: &UsedNumbers) {
        for (i, rule) in self.rules.iter_mut().enumerate() {
            if self.made[i].standing != Standing::InForce && !used.0.get(i).is_some_and(|&used| used) {
                *rule = None;
            }
        }
        let last = self.rules.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.rules.truncate(last);
        self.made.truncate(last);
        // The lowest are taken first, so that the list can become short again.
        let free = (0..last).rev().filter(|&i| self.rules[i].is_none());
        self.free = free.map(|i| (i + 1) as u16).collect();
        // Where little was found, looking again after each change would be in vain.
        self.crowded_at = 2 * (last - self.free.len());
    }

    /// Whether `added` more rules could not be told apart.
    pub(crate) fn is_full(&self, added: usize) -> bool {
        self.grown(added) > MOST_RULES
    }

    /// How long the list is with `added` more rules.
    fn grown(&self, added: usize) -> usize {
        self.rules.len() + added.saturating_sub(self.free.len())
    }

    /// Gives a rule that comes into force a number.
    fn add(&mut self, numbers: Numbers, tier: TierId) -> Option<u16> {
        let rule = Some(self.at_pace(numbers));
        let made = Made { numbers, tier, standing: Standing::InForce };
        if let Some(number) = self.free.pop() {
            self.rules[place(number)] = rule;
            self.made[place(number)] = made;
            return Some(number);
        }
        if self.rules.len() == MOST_RULES {
            return None;
        }
        self.rules.push(rule);
        self.made.push(made);
        Some(self.rules.len() as u16)
    }

    /// How many rules and tiers there is memory for.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 2] {
        [self.rules.len(), self.current.len()]
    }
}

/// Where the rule of a number stands.
#[inline]
fn place(number: u16) -> usize {
    usize::from(number) - 1
}

/// The numbers of rules that keys were last charged by.
#[derive(Debug, Default)]
pub(crate) struct UsedNumbers(Vec<bool>); // as the rules

impl UsedNumbers {
    pub(crate) fn add(&mut self, number: u16) {
        let i = place(number);
        if i >= self.0.len() {
            self.0.resize(i + 1, false);
        }
        self.0[i] = true;
    }
}
