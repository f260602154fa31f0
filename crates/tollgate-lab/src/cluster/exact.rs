//! The store decides each request.

use tollgate_core::PermitId;

use super::outcome::Call;
use super::world::{Protocol, Request, Sender, World};

/// Nodes that remember nothing.
#[derive(Debug)]
pub(super) struct Exact;

/// A check of one request, there and back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    Asked(Request),
    Answered { request: Request, is_allowed: bool },
}

impl Check {
    /// The decision of the store.
    pub(super) fn decide<P: Protocol>(request: Request, world: &mut World<'_, P>) -> Self {
        let now = world.store_clock();
        let decision = world.rule.decide(&mut world.store, PermitId(0), 1, now);
        Self::Answered { request, is_allowed: decision.is_allowed() }
    }

    /// The request, which gets no answer if the message is lost.
    pub(super) const fn request(self) -> Request {
        match self {
            Self::Asked(request) | Self::Answered { request, .. } => request,
        }
    }
}

impl Protocol for Exact {
    type Message = Check;
    type Timer = ();

    fn request(&mut self, node: usize, request: Request, world: &mut World<'_, Self>) {
        world.call(self, Call::ExactCheck, node, Check::Asked(request));
    }

    fn at_store(&mut self, sender: Sender, message: Check, world: &mut World<'_, Self>) {
        let answer = Check::decide(message.request(), world);
        world.reply(self, sender, answer);
    }

    fn at_node(&mut self, node: usize, message: Check, world: &mut World<'_, Self>) {
        if let Check::Answered { request, is_allowed } = message {
            world.end_check(node, request, is_allowed);
        }
    }

    fn at_time(&mut self, _node: usize, (): (), _world: &mut World<'_, Self>) {}

    fn lost(&mut self, _node: usize, message: Check, world: &mut World<'_, Self>) {
        world.give_up(message.request());
    }

    fn restart(&mut self, _node: usize, _world: &mut World<'_, Self>) {}

    fn change_primary(&mut self, _node: usize, _world: &mut World<'_, Self>) {}
}
