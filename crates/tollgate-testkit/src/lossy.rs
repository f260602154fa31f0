//! A network that loses packets: a server behind a router that drops some.
//!
//! The router is a network namespace of its own between this machine and the one the server is in. Packets are
//! dropped as they pass through, as on a wire. Were they dropped where they are sent, the sender would be told.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{self, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::redis::RedisServer;

#[cfg(test)]
mod tests;

/// Networks that are tried: those of eight addresses in 10.213.0.0/16.
const NETWORKS: u32 = 1 << 13;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace that is reached through a router which loses packets. It needs root, `ip` and `nft`.
#[derive(Debug)]
pub struct Lossy {
    /// The name of the server's namespace. That of the router, and of the interface to it, begin with it.
    name: String,
    /// Of this machine, as seen from inside.
    here: Ipv4Addr,
    address: Ipv4Addr,
}

impl Lossy {
    /// Makes one that loses nothing yet.
    ///
    /// # Errors
    ///
    /// Why this machine does not allow it: a test then says so, and that it was skipped.
    pub fn new() -> Result<Self, String> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = free_network(process::id().wrapping_mul(61).wrapping_add(number))?;
        // As short as names of interfaces have to be.
        let name = format!("tg{:x}.{number:x}", process::id());
        let [here, router_here, router_there, address] = network;
        // Dropped, and cleaned up, where a step fails.
        let lossy = Self { name: name.clone(), here, address };
        let (router, link) = (lossy.router(), lossy.link());
        let steps = [
            format!("netns add {name}"),
            format!("netns add {router}"),
            format!("link add {link} type veth peer name outer netns {router}"),
            format!("-n {router} link add inner type veth peer name router netns {name}"),
            format!("addr add {here}/30 dev {link}"),
            format!("-n {router} addr add {router_here}/30 dev outer"),
            format!("-n {router} addr add {router_there}/30 dev inner"),
            format!("-n {name} addr add {address}/30 dev router"),
            format!("link set dev {link} up"),
            format!("-n {router} link set dev outer up"),
            format!("-n {router} link set dev inner up"),
            format!("-n {name} link set dev router up"),
            format!("-n {name} link set dev lo up"),
            format!("route add {address} via {router_here}"),
            format!("-n {name} route add default via {router_there}"),
        ];
        for step in steps {
            run(Command::new("ip").args(step.split(' ')))?;
        }
        let forward = "echo 1 >/proc/sys/net/ipv4/ip_forward";
        run(Command::new("ip").args(["netns", "exec", &router, "sh", "-c", forward]))?;
        lossy.try_lose(0)?;
        Ok(lossy)
    }

    /// Where a server inside is reached.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Where this machine is reached from inside.
    pub fn outside(&self) -> Ipv4Addr {
        self.here
    }

    /// Loses that many of a hundred packets from now on, in each direction.
    ///
    /// # Panics
    ///
    /// When there are more than a hundred, or the machine no longer allows it.
    pub fn lose(&self, percent: u8) {
        assert!(percent <= 100, "{percent} of a hundred");
        self.try_lose(percent).unwrap_or_else(|reason| panic!("{reason}"));
    }

    /// A command that runs inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Starts a Redis server inside, with further arguments. It has to be reached to be known to answer: start it before
    /// much is lost.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::start`].
    #[must_use = "it is gone when it is dropped"]
    pub fn redis(&self, arguments: &[&str]) -> RedisServer {
        RedisServer::inside(&self.name, self.address, arguments)
    }

    fn router(&self) -> String {
        format!("{}r", self.name)
    }

    /// The interface of this machine.
    fn link(&self) -> String {
        format!("{}h", self.name)
    }

    fn try_lose(&self, percent: u8) -> Result<(), String> {
        let rule = match percent {
            // The number is at most 99, and nft refuses to compare it with more.
            100 => "drop".to_owned(),
            percent => format!("numgen random mod 100 < {percent} drop"),
        };
        // In one step, so that nothing passes between. The table has to be there to be deleted.
        let rules = format!(
            "add table ip lossy; delete table ip lossy; add table ip lossy
             add chain ip lossy forward {{ type filter hook forward priority 0; }}
             add rule ip lossy forward {rule}\n"
        );
        let router = self.router();
        let mut nft = Command::new("ip");
        nft.args(["netns", "exec", &router, "nft", "-f", "-"]);
        let output = fed(&mut nft, &rules);
        told(&nft, output)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        // The route goes with its interface, and the other interfaces with the namespaces.
        let _ = run(Command::new("ip").args(["link", "del", &self.link()]));
        let _ = run(Command::new("ip").args(["netns", "del", &self.router()]));
        let _ = run(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

/// The addresses of this machine, of the router towards it and towards the server, and of the server: two networks of
/// four addresses, of which the middle two can be used, in which nobody is.
fn free_network(first: u32) -> Result<[Ipv4Addr; 4], String> {
    let mut list = Command::new("ip");
    list.args(["-o", "-4", "route", "show", "table", "all"]);
    let output = list.output();
    let routes = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let routes = routes.unwrap_or_default();
    told(&list, output)?;
    for number in 0..NETWORKS {
        let base = u32::from(Ipv4Addr::new(10, 213, 0, 0)) + (first.wrapping_add(number) % NETWORKS) * 8;
        let addresses = [1, 2, 5, 6].map(|offset| Ipv4Addr::from(base + offset));
        let is_taken = |word: &str| addresses.iter().any(|address| *word == address.to_string());
        if !routes.split([' ', '/', '\n']).any(is_taken) {
            return Ok(addresses);
        }
    }
    Err("all of 10.213.0.0/16 is in use".to_owned())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    told(command, output)
}

/// Runs a command that reads `input`.
fn fed(command: &mut Command, input: &str) -> std::io::Result<Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    // One that fails says why itself.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output()
}

/// Why a command failed, if it did.
fn told(command: &Command, output: std::io::Result<Output>) -> Result<(), String> {
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {} ({})", errors.trim(), output.status))
}
