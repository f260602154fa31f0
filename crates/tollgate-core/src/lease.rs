//! Leases: units of a shared limit that a node draws from the store, and then spends by itself.
//!
//! The store charges a grant when a node draws it. So all nodes together spend no more than the limit, however many they are and
//! whatever is lost on the way. If units are short, the store charges units that come later, and the grant says from when on it may
//! be spent. Nodes then need not ask again and again.
//!
//! The store's half: [`Rule::lease_terms`](crate::Rule::lease_terms) says which rules can be leased, and
//! [`Rule::grant`](crate::Rule::grant) decides how much a draw gets. The node's half: a [`Lease`] is what one node holds of one key.

mod bucket;
mod demand;
mod grant;
mod node;
mod terms;

pub use self::grant::{Draw, Grant, Mark, OfferParts};
pub use self::node::{DrawId, GrantId, Lease, Step, Take};
pub use self::terms::{NoLease, Terms};

#[cfg(test)]
mod tests;
