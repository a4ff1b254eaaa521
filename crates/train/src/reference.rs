//! Reads the reference results that PyTorch, PyTorch Geometric and DGL gave (tests only).
//!
//! They lie beside the repository, in `../shared/reference`; where there are none a test says so and passes.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use zip::ZipArchive;

/// One `.npz` of the reference.
pub struct Reference {
    path: PathBuf,
}

/// The reference called `name`, if it is on this machine.
pub fn open(name: &str) -> Option<Reference> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference");
    let path = PathBuf::from(folder).join(format!("{name}.npz"));
    if !path.exists() {
        eprintln!("not compared: `{}` is not there", path.display());
        return None;
    }
    Some(Reference { path })
}

/// The reference called `name` among the data of the tests of this crate.
pub fn stored(name: &str) -> Reference {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    Reference { path: PathBuf::from(folder).join(format!("{name}.npz")) }
}

impl Reference {
    /// Whether it has an array called `name`.
    pub fn has(&self, name: &str) -> bool {
        let mut archive = ZipArchive::new(File::open(&self.path).unwrap()).unwrap();
        archive.by_name(&format!("{name}.npy")).is_ok()
    }

    /// The array called `name`, flattened.
    pub fn f64(&self, name: &str) -> Vec<f64> {
        self.read(name).1
    }

    /// Rows of the array called `name`; a vector is one row.
    pub fn rows(&self, name: &str) -> usize {
        let header = self.read(name).0;
        let shape = header.split(['(', ')']).nth(1).unwrap_or_default().to_owned();
        let sides: Vec<usize> = shape.split(',').filter_map(|side| side.trim().parse().ok()).collect();
        if sides.len() > 1 { sides[0] } else { 1 }
    }

    /// Header and numbers of the array called `name`.
    fn read(&self, name: &str) -> (String, Vec<f64>) {
        let mut archive = ZipArchive::new(File::open(&self.path).unwrap()).unwrap();
        let mut bytes = Vec::new();
        archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
        let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let (header, data) = (String::from_utf8_lossy(&bytes[..data]).into_owned(), &bytes[data..]);
        let kind = header.split('\'').nth(3).unwrap();
        let values = match kind {
            "<f4" => data.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect(),
            "<f8" => data.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
            "<i8" => data.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f64).collect(),
            "|u1" => data.iter().map(|&b| f64::from(b)).collect(),
            other => panic!("`{name}` has the type `{other}`"),
        };
        (header, values)
    }

    /// The same in single precision.
    pub fn f32(&self, name: &str) -> Vec<f32> {
        self.f64(name).into_iter().map(|value| value as f32).collect()
    }
}
