//! The code that is made from `proto/` is committed, so that building needs neither the compiler nor its time. This test
//! makes it again and compares; `TOLLGATE_BLESS=1` writes it.

use std::path::{Path, PathBuf};

use prost::Message as _;

#[test]
fn the_code_in_the_tree_is_what_the_protos_make() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("src/grpc/generated");
    let made = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("generated");
    let _ = std::fs::remove_dir_all(&made);
    std::fs::create_dir_all(&made).unwrap();
    let files = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [root.join("proto")]).unwrap();
    std::fs::write(made.join("descriptors.bin"), files.encode_to_vec()).unwrap();
    let protos = tonic_prost_build::configure().build_client(false).build_transport(false);
    protos.out_dir(&made).include_file("mod.rs").compile_fds(files).unwrap();
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        let _ = std::fs::remove_dir_all(&committed);
        std::fs::create_dir_all(&committed).unwrap();
        for file in std::fs::read_dir(&made).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), committed.join(file.file_name())).unwrap();
        }
    }
    let list = |folder: &Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(list(&committed), list(&made), "TOLLGATE_BLESS=1 cargo test writes them");
    for name in list(&made) {
        let read = |folder: &Path| std::fs::read(folder.join(&name)).unwrap();
        assert!(read(&committed) == read(&made), "{name:?}: TOLLGATE_BLESS=1 cargo test writes it");
    }
}
