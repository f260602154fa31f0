//! Scripts, and calls of them as commands.

use redis::{Cmd, RedisWrite as _};

/// A script that runs on the server.
#[derive(Clone, Debug)]
pub struct Script {
    source: &'static str,
    hash: Box<str>, // SHA-1 of the source, in hexadecimal: what the server knows it by
}

impl Script {
    /// A script of this source, which is never put together at run time: each source stays in the server's cache.
    pub fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().into() }
    }

    /// What the server knows it by.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub(super) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.source);
        command
    }
}

/// One call of a script.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What is to run.
    pub script: &'a Script,
    /// The keys it touches: at least one, and all with the same hash tag.
    pub keys: &'a [&'a [u8]],
    /// What else it is told.
    pub args: &'a [&'a [u8]],
}

impl Call<'_> {
    /// The script by its hash, which is what servers usually know.
    pub(super) fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// The script by its source, which servers then know by its hash.
    pub(super) fn eval(&self) -> Cmd {
        self.command("EVAL", self.script.source)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        const COUNT_DIGITS: usize = 4; // of keys; more would only cost an allocation
        let bytes: usize = self.keys.iter().chain(self.args).map(|part| part.len()).sum();
        let parts = 3 + self.keys.len() + self.args.len();
        // Two allocations here and one where it is packed are as few as `Cmd` can be sent with.
        let mut command = Cmd::with_capacity(parts, name.len() + script.len() + COUNT_DIGITS + bytes);
        command.write_arg(name.as_bytes());
        command.write_arg(script.as_bytes());
        command.arg(self.keys.len());
        for part in self.keys.iter().chain(self.args) {
            command.write_arg(part);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_packed_as_the_server_reads_it() {
        let script = Script::new("return 1");
        let call = Call { script: &script, keys: &[b"{a}1", b"{a}2"], args: &[b"", b"x\r\n"] };
        assert_eq!(
            call.evalsha().get_packed_command(),
            b"*7\r\n$7\r\nEVALSHA\r\n$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n\
              $1\r\n2\r\n$4\r\n{a}1\r\n$4\r\n{a}2\r\n$0\r\n\r\n$3\r\nx\r\n\r\n"
        );
        assert!(call.eval().get_packed_command().starts_with(b"*7\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n"));
    }
}
