//! The smallest case that still shows a difference, so that a failed comparison can be read.

use super::{Case, Descriptor, Node, Request};

/// Leaves out of a case whatever can be left out while it still `differs`. One rule is left: a domain without rules is
/// another subject.
pub fn smallest(case: &Case, differs: impl Fn(&Case) -> bool) -> Case {
    let mut smallest = case.clone();
    while let Some(smaller) = smaller_cases(&smallest).into_iter().find(&differs) {
        smallest = smaller;
    }
    smallest
}

/// Every case that has one thing less.
fn smaller_cases(case: &Case) -> Vec<Case> {
    let Case { config, requests } = case;
    let mut cases = Vec::new();
    for smaller in without_one(requests) {
        cases.push(Case { requests: smaller, ..case.clone() });
    }
    let levels = smaller_levels(&config.descriptors).into_iter();
    for descriptors in levels.filter(|level| !level.is_empty()) {
        let mut smaller = case.clone();
        smaller.config.descriptors = descriptors;
        cases.push(smaller);
    }
    for place in 0..requests.len() {
        let (at, request) = &requests[place];
        let earlier = if place == 0 { 0 } else { requests[place - 1].0 };
        if *at != earlier {
            let mut smaller = case.clone();
            smaller.requests[place..].iter_mut().for_each(|(later, _)| *later -= at - earlier);
            cases.push(smaller);
        }
        for request in smaller_requests(request) {
            let mut smaller = case.clone();
            smaller.requests[place].1 = request;
            cases.push(smaller);
        }
    }
    cases
}

fn without_one<T: Clone>(items: &[T]) -> impl Iterator<Item = Vec<T>> {
    (0..items.len()).map(|place| [&items[..place], &items[place + 1..]].concat())
}

fn smaller_levels(level: &[Node]) -> Vec<Vec<Node>> {
    let mut levels: Vec<Vec<Node>> = without_one(level).collect();
    for place in 0..level.len() {
        for smaller in smaller_nodes(&level[place]) {
            let mut level = level.to_vec();
            level[place] = smaller;
            levels.push(level);
        }
    }
    levels
}

fn smaller_nodes(node: &Node) -> Vec<Node> {
    let mut nodes = vec![
        Node { rate_limit: None, ..node.clone() },
        Node { shadow_mode: false, ..node.clone() },
        Node { quota_mode: false, ..node.clone() },
        Node { share_threshold: false, ..node.clone() },
    ];
    if let Some(limit) = &node.rate_limit {
        let mut smaller = vec![limit.clone(), limit.clone()];
        smaller[0].name.clear();
        smaller[1].replaces.clear();
        nodes.extend(smaller.into_iter().map(|limit| Node { rate_limit: Some(limit), ..node.clone() }));
    }
    let levels = smaller_levels(&node.descriptors).into_iter();
    nodes.extend(levels.map(|descriptors| Node { descriptors, ..node.clone() }));
    nodes.retain(|smaller| smaller != node);
    nodes
}

fn smaller_requests(request: &Request) -> Vec<Request> {
    let mut requests = vec![Request { hits_addend: 0, ..request.clone() }];
    if request.descriptors.len() > 1 {
        let fewer = without_one(&request.descriptors);
        requests.extend(fewer.map(|descriptors| Request { descriptors, ..request.clone() }));
    }
    for (place, descriptor) in request.descriptors.iter().enumerate() {
        let smaller = [
            Descriptor { hits_addend: None, ..descriptor.clone() },
            Descriptor { limit: None, ..descriptor.clone() },
        ];
        for smaller in smaller {
            let mut request = request.clone();
            request.descriptors[place] = smaller;
            requests.push(request);
        }
    }
    requests.retain(|smaller| smaller != request);
    requests
}
