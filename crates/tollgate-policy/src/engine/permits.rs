//! Slots of concurrency limits that a request holds.

use std::fmt;
use std::sync::Arc;

use tollgate::Permit;

use crate::store::{Store, StoredPermit, Unavailable};

/// Slots of concurrency limits, in the table of this process or in a store. Dropping them releases them.
#[derive(Default)]
pub struct Permits {
    local: Vec<Permit>,
    stored: Option<(Arc<dyn Store>, Vec<StoredPermit>)>,
}

impl Permits {
    /// Permits that a store keeps, given to this process or to another.
    pub fn stored(store: Arc<dyn Store>, permits: Vec<StoredPermit>) -> Self {
        let stored = (!permits.is_empty()).then_some((store, permits));
        Self { local: Vec::new(), stored }
    }

    /// How many slots are held.
    pub fn len(&self) -> usize {
        self.local.len() + self.stored.as_ref().map_or(0, |(_, permits)| permits.len())
    }

    /// Whether no slot is held.
    pub fn is_empty(&self) -> bool {
        self.local.is_empty() && self.stored.is_none()
    }

    /// The permits as their store knows them, if a store keeps all of them. Any process on the store can release them.
    pub fn in_store(&self) -> Option<&[StoredPermit]> {
        self.stored.as_ref().filter(|_| self.local.is_empty()).map(|(_, permits)| &permits[..])
    }

    /// Leaves them in their store, for any caller that has their IDs.
    pub fn leave_in_store(mut self) {
        self.stored = None;
    }

    /// Releases them. Returns whether all were still held.
    ///
    /// # Errors
    ///
    /// When the store that keeps them gives no answer. Then they are released in the background; if that fails, their leases end
    /// them.
    pub async fn release(mut self) -> Result<bool, Unavailable> {
        // All of them, whether or not one has ended.
        let local = self.local.drain(..).map(Permit::release).fold(true, |all, was_held| all & was_held);
        match self.stored.take() {
            None => Ok(local),
            Some((store, permits)) => match store.release(&permits).await {
                Ok(released) => Ok(released & local),
                Err(unavailable) => {
                    store.release_later(permits);
                    Err(unavailable)
                }
            },
        }
    }
}

impl From<Vec<Permit>> for Permits {
    fn from(local: Vec<Permit>) -> Self {
        Self { local, stored: None }
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if let Some((store, permits)) = self.stored.take() {
            store.release_later(permits);
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = self.stored.as_ref().map_or(0, |(_, permits)| permits.len());
        f.debug_struct("Permits").field("local", &self.local.len()).field("stored", &stored).finish()
    }
}
