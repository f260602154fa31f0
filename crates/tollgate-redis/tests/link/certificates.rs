//! Certificates.

use std::process::Command;

use tollgate_testkit::Directory;

/// Makes an authority, and a certificate for 127.0.0.1 that it has signed: `ca.pem`, `cert.pem` and `key.pem`; one for the same
/// key of the first version of X.509, `v1.pem`; and an authority that 127.0.0.1 might show itself, `self.pem` and `self.key`, and one for
/// the first key that has signed itself and is no authority, `alone.pem`.
pub(crate) fn certificates() -> Directory {
    let folder = Directory::new();
    folder.write("names", "subjectAltName=IP:127.0.0.1\n");
    let run = |line: &str| {
        let output = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(folder.path())
            .output()
            .expect("openssl is installed");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 9 -subj /CN=ca",
    );
    run(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.csr -subj /CN=server",
    );
    run(
        "x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -extfile names -out cert.pem",
    );
    run("x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -out v1.pem");
    run(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout self.key -out self.pem -days 9 -subj /CN=self -addext subjectAltName=IP:127.0.0.1",
    );
    folder.write("alone", "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n");
    run("x509 -req -in cert.csr -signkey key.pem -days 9 -extfile alone -out alone.pem");
    folder
}
