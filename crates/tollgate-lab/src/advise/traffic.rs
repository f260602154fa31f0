//! The requests of logs in the order of their times, as often as they are needed, in memory that grows with clients.
//!
//! Large logs are read again for each pass. Requests that stand a little out of order are sorted on the way, as access logs have them: a line is
//! written when the answer is complete. All requests are kept in memory only if they are few, if they are further out of order, or if they
//! come through a pipe.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use memchr::memchr;
use tollgate_policy::{ClientIp, Policy};

use super::Grouping;
use crate::LabError;
use crate::algorithms::Event;
use crate::clients::Clients;
use crate::log::{Counts, Entry, Logs, Progress};
use crate::policy_replay::client_address;

/// A request may stand this many requests behind its place in the order of times.
const REORDERED: usize = 1 << 16;

/// As many requests are kept in memory rather than read again: 3 MiB.
const MOST_KEPT: usize = 1 << 17;

/// The requests of logs, with the groups and clients found in them.
pub(super) struct Traffic<'l> {
    logs: &'l Logs,
    passes: u64, // to be made in all
    made: u64,
    numbering: Numbering<'l>,
    first: Option<Pass>,
    reorder: Reorder,
    sorted: Option<Vec<Event>>, // all requests, if they are few or cannot be read in order
}

/// What a pass has read.
struct Pass {
    counts: Counts,
    requests: Requests,
}

/// How many requests were read, and a checksum of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    count: u64,
    checksum: u64,
}

impl Requests {
    fn add(&mut self, event: Option<&Event>) {
        self.count += 1;
        let Some(Event { at, cost, client }) = event else { return };
        let mixed = self.checksum ^ at ^ cost.rotate_left(32) ^ u64::from(*client).rotate_left(48);
        self.checksum = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

/// Numbers of groups and of their clients. A client that is in two groups has a number in each.
struct Numbering<'l> {
    grouping: &'l Grouping,
    client_ip: ClientIp,
    names: Clients,                        // of groups
    clients: Vec<HashMap<Box<[u8]>, u32>>, // by group
    group_of: Vec<u32>,                    // by client
    key: Option<String>,
    name: Vec<u8>,
}

impl Numbering<'_> {
    /// The request of an entry, with its client's number. None if it is of no group.
    fn event(&mut self, entry: &Entry<'_>) -> Option<Event> {
        self.name.clear();
        let key = self.key.get_or_insert_with(|| entry.client_name().to_owned());
        if !self.grouping.name(entry, &mut self.name) {
            return None;
        }
        let is_known = *self.grouping == Grouping::All && !self.names.is_empty();
        let group = if is_known { 0 } else { self.names.number(&self.name) };
        // As a policy tells clients apart, for it is a policy that is suggested. Text without a colon is not an IPv6 address.
        let text = String::from_utf8_lossy(entry.client());
        let text = match key.as_str() {
            "ip" if memchr(b':', text.as_bytes()).is_some() => {
                Cow::from(client_address(&self.client_ip, &text))
            }
            _ => text,
        };
        let clients = super::entry(&mut self.clients, group);
        let client = clients.get(text.as_bytes()).copied().unwrap_or_else(|| {
            let number =
                u32::try_from(self.group_of.len()).expect("fewer than four thousand million clients");
            self.group_of.push(group);
            clients.insert(text.as_bytes().into(), number);
            number
        });
        Some(Event { at: entry.at, cost: entry.cost.unwrap_or(1), client })
    }
}

/// Requests that may still change places.
#[derive(Default)]
struct Reorder {
    waiting: Vec<Event>,
    last: u64, // the time of the last request that was handed on
}

/// A request stands too far behind its place.
struct TooLate;

impl Reorder {
    fn push(&mut self, event: Event, each: &mut impl FnMut(&Event)) -> Result<(), TooLate> {
        self.waiting.push(event);
        if self.waiting.len() < 2 * REORDERED { Ok(()) } else { self.hand_on(REORDERED, each) }
    }

    fn finish(&mut self, each: &mut impl FnMut(&Event)) -> Result<(), TooLate> {
        self.hand_on(self.waiting.len(), each)
    }

    fn hand_on(&mut self, count: usize, each: &mut impl FnMut(&Event)) -> Result<(), TooLate> {
        if !self.waiting.is_sorted_by_key(|event| event.at) {
            self.waiting.sort_by_key(|event| event.at); // a stable sort
        }
        if self.waiting.first().is_some_and(|first| first.at < self.last) {
            return Err(TooLate);
        }
        for event in self.waiting.drain(..count) {
            self.last = event.at;
            each(&event);
        }
        Ok(())
    }
}

impl<'l> Traffic<'l> {
    /// The requests of `logs`, for a number of passes.
    pub(super) fn new(logs: &'l Logs, grouping: &'l Grouping, passes: u64) -> Self {
        let numbering = Numbering {
            grouping,
            client_ip: Policy::default().identity.client_ip,
            names: Clients::default(),
            clients: Vec::new(),
            group_of: Vec::new(),
            key: None,
            name: Vec::new(),
        };
        Self { logs, passes, made: 0, numbering, first: None, reorder: Reorder::default(), sorted: None }
    }

    /// Hands all requests to `take`, in the order of their times, each with the number of its group. `take` may see a part of the
    /// requests with one `C` first, and then all requests with another.
    ///
    /// # Errors
    ///
    /// When the logs cannot be read, or have changed since the first pass.
    pub(super) fn pass<C: Default>(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        take: impl Fn(&mut C, &Event, u32),
    ) -> Result<C, LabError> {
        let streamed = match self.sorted.is_none() && self.logs.can_be_read_again() {
            true => self.stream(progress, &take)?,
            false => None,
        };
        self.made += 1;
        if let Some(taken) = streamed {
            return Ok(taken);
        }
        if self.sorted.is_none() {
            self.reorder = Reorder::default();
            self.sorted = Some(self.sort(progress)?);
        }
        let mut taken = C::default();
        for event in self.sorted.iter().flatten() {
            take(&mut taken, event, self.group_of(event.client));
        }
        Ok(taken)
    }

    /// A pass through the logs. None if requests are too far out of order.
    fn stream<C: Default>(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        take: impl Fn(&mut C, &Event, u32),
    ) -> Result<Option<C>, LabError> {
        let mut taken = C::default();
        let mut kept = self.first.is_none().then(Vec::new);
        let (mut requests, mut is_ordered) = (Requests::default(), true);
        let (made, passes) = (self.made, self.passes);
        let mut progress =
            |Progress { read, of }| progress(Progress { read: made * of + read, of: passes * of });
        let mut hand_on = |event: &Event, group_of: &[u32]| {
            take(&mut taken, event, group_of[event.client as usize]);
            match &mut kept {
                Some(list) if list.len() < MOST_KEPT => list.push(*event),
                list => *list = None,
            }
        };
        let (numbering, reorder) = (&mut self.numbering, &mut self.reorder);
        reorder.last = 0;
        // A log may grow meanwhile.
        let most = self.first.as_ref().map_or(u64::MAX, |first| first.requests.count);
        let counts = self.logs.read(&mut progress, &mut |entry| {
            let event = numbering.event(&entry);
            requests.add(event.as_ref());
            if let Some(event) = event {
                let handed = reorder.push(event, &mut |event| hand_on(event, &numbering.group_of));
                is_ordered = handed.is_ok();
            }
            if is_ordered && requests.count < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        is_ordered = is_ordered && reorder.finish(&mut |event| hand_on(event, &numbering.group_of)).is_ok();
        if !is_ordered && self.first.is_none() {
            return Ok(None);
        }
        let first = self.first.get_or_insert(Pass { counts, requests });
        if !is_ordered || first.requests != requests {
            return Err(LabError::Asked(
                "the log was changed while it was read: advise on a copy of it".to_owned(),
            ));
        }
        self.sorted = kept;
        Ok(Some(taken))
    }

    /// All requests in order, in memory.
    fn sort(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Event>, LabError> {
        let (mut events, mut requests) = (Vec::new(), Requests::default());
        let counts = self.logs.read(progress, &mut |entry| {
            let event = self.numbering.event(&entry);
            requests.add(event.as_ref());
            events.extend(event);
            ControlFlow::Continue(())
        })?;
        self.first = Some(Pass { counts, requests });
        events.sort_by_key(|event| event.at); // a stable sort
        Ok(events)
    }

    /// What the first pass has counted.
    pub(super) fn counts(&self) -> Counts {
        self.first.as_ref().map_or_else(Counts::default, |first| first.counts)
    }

    /// The attribute of a policy that tells clients apart as they were here.
    pub(super) fn key(&self) -> String {
        self.numbering.key.clone().unwrap_or_default()
    }

    /// The names of groups, by number.
    pub(super) fn group_names(&self) -> Vec<String> {
        self.numbering.names.names()
    }

    /// The group of a client.
    pub(super) fn group_of(&self, client: u32) -> u32 {
        self.numbering.group_of[client as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reordered(times: impl IntoIterator<Item = u64>) -> Option<Vec<(u64, u32)>> {
        let (mut reorder, mut order) = (Reorder::default(), Vec::new());
        let mut each = |event: &Event| order.push((event.at, event.client));
        let all = (0..)
            .zip(times)
            .try_for_each(|(client, at)| reorder.push(Event { at, cost: 1, client }, &mut each));
        all.and_then(|()| reorder.finish(&mut each)).ok().map(|()| order)
    }

    #[test]
    fn requests_a_little_out_of_order_are_sorted_and_equal_times_keep_their_order() {
        let count = 5 * REORDERED as u64;
        // Each request comes up to 1000 places late.
        let times: Vec<u64> = (0..count).map(|i| (i + 1000 - i * 7919 % 1000) / 3).collect();
        let mut expected: Vec<(u64, u32)> = times.iter().copied().zip(0..).collect();
        expected.sort();
        assert_eq!(reordered(times), Some(expected));
    }

    #[test]
    fn requests_far_out_of_order_are_noticed() {
        let count = 5 * REORDERED as u64;
        assert!(reordered((0..count).chain([0])).is_none());
        assert!(reordered((0..count).chain([count - REORDERED as u64])).is_some());
    }
}
