//! The most that passed in any true window: what a limit is held against.

use std::collections::VecDeque;

/// What passed of each client in the last window.
#[derive(Debug)]
pub struct MostInWindow {
    window: u64,
    clients: Vec<Passed>,
    most: u64,
}

#[derive(Debug, Default)]
struct Passed {
    times: VecDeque<(u64, u64)>, // when, and at what cost
    cost: u64,
}

impl MostInWindow {
    /// Windows of so many nanoseconds, wherever they begin.
    pub const fn new(window: u64) -> Self {
        Self { window, clients: Vec::new(), most: 0 }
    }

    /// Something of a client passed at a time: what is held, when it goes. A client's come in order.
    pub fn passed(&mut self, client: u32, at: u64, cost: u64) {
        let client = client as usize;
        if client >= self.clients.len() {
            self.clients.resize_with(client + 1, Passed::default);
        }
        let passed = &mut self.clients[client];
        passed.times.push_back((at, cost));
        passed.cost += cost;
        // A window is half open: what is exactly as old is out.
        while let Some((_, cost)) = passed.times.front().copied().filter(|(old, _)| at - old >= self.window) {
            passed.times.pop_front();
            passed.cost -= cost;
        }
        self.most = self.most.max(passed.cost);
    }

    /// The most cost that one client had pass in any window.
    pub const fn most(&self) -> u64 {
        self.most
    }
}
