//! The mistakes of leases: where each would stand, and the test of the model that finds it.

use tollgate_testkit::mistakes::Mistake;

const NODE: &str = "crates/tollgate-core/src/lease/node.rs";

pub(crate) const LEASE_MISTAKES: &[Mistake] = &[
    Mistake {
        what: "extending the life of a grant by the time that its answer took",
        file: NODE,
        right: "let life_ends = id.sent.after(start).after(self.terms.life());",
        wrong: "let life_ends = now.after(start).after(self.terms.life());",
        caught_by: "lease_model::late_answers_extend_no_life",
    },
    Mistake {
        what: "spending units before the answer to their draw",
        file: NODE,
        right: "self.waiting_cost = self.waiting_cost.max(cost);\n        Take::Wait",
        wrong: "if self.in_flight.is_some() {\n            return Take::Taken(GrantId(self.draws));\n        }\n        self.waiting_cost = self.waiting_cost.max(cost);\n        Take::Wait",
        caught_by: "lease_model::no_fault_breaks_a_promise",
    },
    Mistake {
        what: "taking an answer that comes twice for two grants",
        file: NODE,
        right: "if id.number <= self.answered ||",
        wrong: "if id.number < self.answered ||",
        caught_by: "lease_model::no_fault_breaks_a_promise",
    },
    Mistake {
        what: "counting the start of a grant from when its draw was sent",
        file: NODE,
        right: "let from = received.after(start);",
        wrong: "let from = id.sent.after(start);",
        caught_by: "lease_model::late_draws_are_spent_from_their_start_on",
    },
    Mistake {
        what: "counting a return that comes twice as two returns",
        file: "crates/tollgate-core/tests/lease_model/store.rs",
        right: "key.returned.contains(&name) ||",
        wrong: "",
        caught_by: "lease_model::returns_count_once_and_at_their_own_primary",
    },
    Mistake {
        what: "returning units to a primary that they were not drawn from",
        file: NODE,
        right: "if units > 0 && primary == self.primary {",
        wrong: "if units > 0 && primary <= self.primary {",
        caught_by: "lease_model::returns_count_once_and_at_their_own_primary",
    },
    Mistake {
        what: "putting units back into a newer grant",
        file: NODE,
        right: "self.held.iter_mut().find(|grant| grant.id == id) else",
        wrong: "self.held.iter_mut().rfind(|grant| grant.id.0 >= id.0) else",
        caught_by: "lease_model::units_are_put_back_where_they_came_from",
    },
    Mistake {
        what: "sending a draw while another is in flight",
        file: NODE,
        right: "self.in_flight.is_none()\n            && !self.is_closed\n            && self.places()",
        wrong: "!self.is_closed\n            && self.places()",
        caught_by: "lease_model::a_node_has_two_grants_in_hand_and_on_the_way",
    },
    Mistake {
        what: "sending a draw while one that was given up may be answered",
        file: NODE,
        right: "self.places() + self.may_be_answered(now) < MOST_GRANTS",
        wrong: "self.places() + self.may_be_answered(now).min(0) < MOST_GRANTS",
        caught_by: "lease_model::a_node_has_two_grants_in_hand_and_on_the_way",
    },
    Mistake {
        what: "giving a new life to a grant whose answer comes after its life",
        file: NODE,
        right: "let life_ends = id.sent.after(start).after(self.terms.life());",
        wrong: "let in_time = now < id.sent.after(self.terms.life());\n        let life_ends = if in_time { id.sent } else { now }.after(start).after(self.terms.life());",
        caught_by: "lease_model::late_answers_extend_no_life",
    },
    Mistake {
        what: "keeping grants when the numbers change",
        file: NODE,
        right: "let Self { demand, draws, primary, owed, .. } = self;\n        *self = Self {\n            lapsed,",
        wrong: "let held = std::mem::take(&mut self.held);\n        let Self { demand, draws, primary, owed, .. } = self;\n        *self = Self {\n            held,\n            lapsed,",
        caught_by: "lease_model::no_fault_breaks_a_promise",
    },
    Mistake {
        what: "presenting the mark on every draw",
        file: NODE,
        right: "let mark = if self.has_to_present { self.mark } else { None };",
        wrong: "let mark = self.mark;",
        caught_by: "lease_model::no_fault_breaks_a_promise",
    },
];
