//! Weighted fair queue: start-time fair queuing with exact tags, everything in one list.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;
use std::collections::BTreeMap;

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod tests;

/// Requests of many tenants that share `slots` in proportion to their weights.
///
/// Of every tenant the oldest waiting request carries a start tag S = max(v, F). The smallest is
/// dispatched, ties by arrival; v becomes its S and its tenant's F becomes S + cost/weight. When
/// nothing waits and nothing runs, v and every F start again from 0.
#[derive(Clone, Debug)]
pub struct FairQueue {
    slots: usize,
    per_tenant_cap: usize,
    v: BigRational,
    tenants: BTreeMap<u32, Tenant>,
    /// All that wait, in order of arrival.
    waiting: Vec<Request>,
    running: Vec<Request>,
    expired: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Tenant {
    /// Finish tag of the last dispatched request, corrected when it turned out to cost more or
    /// less.
    f: BigRational,
    served: u64,
    completed: u64,
}

#[derive(Clone, Debug)]
struct Request {
    id: u64,
    tenant: u32,
    weight: u64,
    cost: u64,
    deadline: Option<u64>,
    /// Start tag, once it is its tenant's oldest.
    s: Option<BigRational>,
}

impl FairQueue {
    /// Nothing waits, nothing runs.
    pub fn new(slots: usize, per_tenant_cap: usize) -> Self {
        Self {
            slots,
            per_tenant_cap,
            v: BigRational::zero(),
            tenants: BTreeMap::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            expired: Vec::new(),
        }
    }

    /// Queues a request; false if `per_tenant_cap` requests of the tenant wait already. The weight
    /// is at least 1, the cost an estimate, the id unique, the deadline the last time at which it
    /// may be dispatched.
    pub fn push(&mut self, tenant: u32, weight: u64, cost: u64, deadline: Option<u64>, id: u64) -> bool {
        assert!(weight > 0, "a tenant without weight would wait for ever");
        if self.waiting(tenant) >= self.per_tenant_cap {
            return false;
        }
        self.tenants.entry(tenant).or_default();
        self.waiting.push(Request { id, tenant, weight, cost, deadline, s: None });
        self.tag_head(tenant);
        true
    }

    /// Starts the next request and returns its id; `None` when no slot is free or nothing waits. A
    /// request whose turn comes after its deadline is dropped, uncharged.
    pub fn dispatch(&mut self, now: u64) -> Option<u64> {
        while self.running.len() < self.slots {
            let Some(place) = self.smallest_tag() else {
                break;
            };
            let request = self.waiting.remove(place);
            if request.deadline.is_some_and(|deadline| now > deadline) {
                self.expired.push(request.id);
                self.tag_head(request.tenant);
                continue;
            }
            let s = request.s.clone().expect("only tagged requests are chosen");
            let tenant = self.tenants.get_mut(&request.tenant).expect("known since its first request");
            tenant.f = &s + fraction(request.cost.into(), request.weight);
            tenant.served += request.cost;
            self.v = s;
            self.tag_head(request.tenant);
            let id = request.id;
            self.running.push(request);
            return Some(id);
        }
        self.start_again_if_idle();
        None
    }

    /// Ends a running request: frees its slot and corrects its tenant's F by what it cost more or
    /// less than estimated, though not below v. False if no such request runs.
    pub fn finish(&mut self, id: u64, actual_cost: u64) -> bool {
        let Some(place) = self.running.iter().position(|request| request.id == id) else {
            return false;
        };
        let request = self.running.remove(place);
        let tenant = self.tenants.get_mut(&request.tenant).expect("known since its first request");
        tenant.completed += actual_cost;
        let difference = i128::from(actual_cost) - i128::from(request.cost);
        let corrected = &tenant.f + fraction(difference, request.weight);
        tenant.f = corrected.max(self.v.clone());
        self.untag_head(request.tenant);
        self.tag_head(request.tenant);
        self.start_again_if_idle();
        true
    }

    /// Takes a waiting request out, uncharged. False if no such request waits.
    pub fn cancel(&mut self, id: u64) -> bool {
        let Some(place) = self.waiting.iter().position(|request| request.id == id) else {
            return false;
        };
        let request = self.waiting.remove(place);
        self.tag_head(request.tenant);
        self.start_again_if_idle();
        true
    }

    /// The ids dropped for their deadline since the last call, in the order in which their turn
    /// came.
    pub fn take_expired(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.expired)
    }

    /// Cost dispatched for a tenant so far, as estimated.
    pub fn served(&self, tenant: u32) -> u64 {
        self.tenants.get(&tenant).map_or(0, |tenant| tenant.served)
    }

    /// Cost a tenant's finished requests really had.
    pub fn completed(&self, tenant: u32) -> u64 {
        self.tenants.get(&tenant).map_or(0, |tenant| tenant.completed)
    }

    /// Requests of a tenant that wait.
    pub fn waiting(&self, tenant: u32) -> usize {
        self.waiting.iter().filter(|request| request.tenant == tenant).count()
    }

    /// Requests that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The virtual time v: the start tag of the request dispatched last.
    pub fn virtual_time(&self) -> &BigRational {
        &self.v
    }

    fn smallest_tag(&self) -> Option<usize> {
        let tagged =
            self.waiting.iter().enumerate().filter_map(|(place, request)| Some((request.s.as_ref()?, place)));
        // The list is in order of arrival, so among equal tags the smallest place came first.
        tagged.min().map(|(_, place)| place)
    }

    fn tag_head(&mut self, tenant: u32) {
        let Some(head) = self.waiting.iter_mut().find(|request| request.tenant == tenant) else {
            return;
        };
        if head.s.is_none() {
            head.s = Some(self.tenants[&tenant].f.clone().max(self.v.clone()));
        }
    }

    fn untag_head(&mut self, tenant: u32) {
        if let Some(head) = self.waiting.iter_mut().find(|request| request.tenant == tenant) {
            head.s = None;
        }
    }

    fn start_again_if_idle(&mut self) {
        if self.waiting.is_empty() && self.running.is_empty() {
            self.v = BigRational::zero();
            for tenant in self.tenants.values_mut() {
                tenant.f = BigRational::zero();
            }
        }
    }
}

fn fraction(numerator: i128, denominator: u64) -> BigRational {
    BigRational::new(BigInt::from(numerator), BigInt::from(denominator))
}
