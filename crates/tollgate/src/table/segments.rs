//! A hash table that grows a little at a time.
//!
//! A hash table that doubles moves every entry in one request, and is half empty afterwards. This one is cut
//! into segments of a few hundred slots and grows by linear hashing (Litwin 1980): one more segment at a time,
//! filled from the one segment whose keys it shares. Each segment is as long as its keys need, 50 to 88 %
//! full, so that a key takes about 20 bytes however many there are; and whatever a request meets, growth
//! included, it touches at most `MOST_TOUCHED` slots.
//!
//! Keys are removed in passing: a full segment is swept of what is no longer used before it is made longer,
//! and segments are swept in turn before one is added.

use std::cell::Cell;

use super::prefetch::prefetch_for_write;
use super::slot::Slot;

/// Keys a segment has on average before another is added. Those yet to be split hold up to twice as many,
/// those just split half.
const AVERAGE: usize = 128;

/// The slots one request may touch in the worst case: sweeping, splitting and lengthening segments that hold
/// three times the average. Those yet to be split hold twice the average, so that this is eight standard
/// deviations away.
#[cfg(test)]
pub(crate) const MOST_TOUCHED: usize = 4096;

/// The slots one request may add. A segment is lengthened by a quarter, and one that is split becomes two which
/// together are a third longer; each of three times the average.
const MOST_ADDED: usize = 2 * AVERAGE;

/// The segments of one shard. `repr(C)` keeps the first fields in the cache line of the lock.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Segments {
    // A copy of the slot that most plans ask for, if many plans wait for the shard. It is in the cache line of the
    // lock, so another processor fetches one line and not two. While the copy exists, the slot in `segments` is out
    // of date.
    front: Slot,
    front_place: SlotPlace, // the place of the slot that `front` is a copy of
    votes: u32,             // recent plans that asked for the front, minus those that asked for other keys
    segments: Vec<Segment>,
    len: usize,
    slots: usize,         // of all segments, taken or not
    hand: usize,          // the segment to be swept next
    touched: Cell<usize>, // slots swept, looked at for eviction, moved or made since it was last taken
}

/// Where a slot is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotPlace {
    segment: u32,
    slot: u32,
}

impl SlotPlace {
    /// The place of `Segments::front`.
    const FRONT: Self = Self { segment: u32::MAX, slot: 0 };

    const fn is_front(self) -> bool {
        self.segment == Self::FRONT.segment
    }
}

/// The largest value of `Segments::votes`. After this many plans for other keys, another key can come to the front.
const MOST_VOTES: u32 = 16;

impl Segments {
    pub(crate) fn new() -> Self {
        Self {
            front: Slot::VACANT,
            front_place: SlotPlace::FRONT,
            votes: 0,
            segments: vec![Segment::default()],
            len: 0,
            slots: 0,
            hand: 0,
            touched: Cell::new(0),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Slots that were swept, looked at for eviction, moved or made since this was last asked.
    pub(crate) fn take_touched(&self) -> usize {
        self.touched.take()
    }

    fn touch(&self, slots: usize) {
        self.touched.set(self.touched.get() + slots);
    }

    /// Bytes of memory in use, but for the allocator's own.
    #[inline]
    pub(crate) const fn bytes(&self) -> usize {
        self.slots * size_of::<Slot>() + self.segments.capacity() * size_of::<Segment>()
    }

    /// Bytes that one more key may add: one segment lengthened, another split, and the list of them doubled.
    #[inline]
    pub(crate) const fn growth(&self) -> usize {
        let list = if self.segments.len() < self.segments.capacity() { 0 } else { self.segments.capacity() };
        MOST_ADDED * size_of::<Slot>() + list * size_of::<Segment>()
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<&Slot> {
        if self.front.is(hash) {
            return Some(&self.front);
        }
        let segment = &self.segments[self.place(hash)];
        segment.find(hash).map(|i| &segment.slots[i])
    }

    /// Returns the place where the search for the slot of a key begins, and starts to fetch this place for writing.
    /// Returns none if the segment of the key has no slots.
    #[inline]
    pub(crate) fn begin_search(&self, hash: u64) -> Option<SlotPlace> {
        if self.front.is(hash) {
            return Some(SlotPlace::FRONT);
        }
        let place = self.place(hash);
        let segment = &self.segments[place];
        let start = segment.start(hash);
        prefetch_for_write(segment.slots.get(start)?);
        Some(SlotPlace { segment: place as u32, slot: start as u32 })
    }

    /// Returns the place of the slot of a key. The search goes on from `start`, which
    /// [`begin_search`](Self::begin_search) returned. The place is valid until a key is added or removed, or
    /// [`vote`](Self::vote) is called.
    #[inline]
    pub(crate) fn locate(&self, hash: u64, start: SlotPlace) -> Option<SlotPlace> {
        if start.is_front() {
            return Some(start);
        }
        let slot = self.segments[start.segment as usize].find_from(start.slot as usize, hash)?;
        Some(SlotPlace { slot: slot as u32, ..start })
    }

    #[inline]
    pub(crate) fn at(&self, place: SlotPlace) -> &Slot {
        if place.is_front() {
            return &self.front;
        }
        &self.segments[place.segment as usize].slots[place.slot as usize]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, place: SlotPlace) -> &mut Slot {
        if place.is_front() {
            return &mut self.front;
        }
        &mut self.segments[place.segment as usize].slots[place.slot as usize]
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, hash: u64) -> Option<&mut Slot> {
        if self.front.is(hash) {
            return Some(&mut self.front);
        }
        let place = self.place(hash);
        let segment = &mut self.segments[place];
        segment.find_for_write(hash).map(|i| &mut segment.slots[i])
    }

    /// Counts that a plan asked for a key of a busy shard. The key that most plans ask for comes to the front, by the
    /// majority vote of Boyer and Moore. Places that [`locate`](Self::locate) returned are no longer valid.
    pub(crate) fn vote(&mut self, hash: u64) {
        if self.front.is(hash) {
            self.votes = (self.votes + 1).min(MOST_VOTES);
        } else if self.votes > 0 {
            self.votes -= 1;
        } else if let Some(place) = self.begin_search(hash).and_then(|start| self.locate(hash, start)) {
            self.put_front_back();
            (self.front, self.front_place, self.votes) = (*self.at(place), place, 1);
        }
    }

    /// Copies the front back to its slot and empties the front. This must happen before slots move.
    fn put_front_back(&mut self) {
        if !self.front.is_vacant() {
            *self.at_mut(self.front_place) = self.front;
            (self.front, self.votes) = (Slot::VACANT, 0);
        }
    }

    /// Adds a key that is not there. `reclaim` is asked for each slot met in passing whether it is no longer
    /// used; what it says so of is removed.
    pub(crate) fn insert(&mut self, slot: Slot, mut reclaim: impl FnMut(&Slot) -> bool) {
        if self.len >= self.segments.len() * AVERAGE {
            self.make_room(&mut reclaim);
        }
        let place = self.place(slot.hash());
        if self.segments[place].is_full() {
            self.sweep(place, &mut reclaim);
        }
        if self.segments[place].is_full() {
            let slots = self.edit(place, Segment::fit);
            self.touch(slots);
        }
        self.segments[place].put(slot);
        self.len += 1;
    }

    /// Adds a key in place of another of its segment, which has just been removed: nothing has to grow.
    pub(crate) fn insert_instead(&mut self, slot: Slot) {
        let place = self.place(slot.hash());
        self.segments[place].put(slot);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, hash: u64) -> Option<Slot> {
        self.put_front_back();
        let place = self.place(hash);
        self.touch(self.segments[place].slots.len());
        let removed = self.edit(place, |segment| segment.remove(hash))?;
        self.len -= 1;
        Some(removed)
    }

    /// Changes a segment, and keeps count of the slots.
    fn edit<T>(&mut self, place: usize, change: impl FnOnce(&mut Segment) -> T) -> T {
        let segment = &mut self.segments[place];
        let before = segment.slots.len();
        let result = change(segment);
        self.slots = self.slots + segment.slots.len() - before;
        result
    }

    /// Whether two hashes belong to one segment.
    pub(crate) fn are_together(&self, hash: u64, other: u64) -> bool {
        self.place(hash) == self.place(other)
    }

    /// The keys of the segment that `hash` belongs to, at most a few hundred, from its place on.
    pub(crate) fn around(&self, hash: u64) -> impl Iterator<Item = &Slot> {
        let segment = &self.segments[self.place(hash)];
        let (before, after) = segment.slots.split_at(segment.start(hash));
        let slots = after.iter().chain(before).inspect(|_| self.touch(1));
        slots.filter(|slot| !slot.is_vacant()).map(|slot| self.current(slot))
    }

    /// The up-to-date form of a slot: the front if it is a copy of this slot, else the slot itself.
    fn current<'s>(&'s self, slot: &'s Slot) -> &'s Slot {
        if self.front.is(slot.hash()) { &self.front } else { slot }
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.segments.iter().flat_map(Segment::iter).map(|slot| self.current(slot))
    }

    /// Sweeps the next segment in turn. How many keys that removed.
    pub(crate) fn sweep_next(&mut self, reclaim: &mut impl FnMut(&Slot) -> bool) -> usize {
        self.hand = if self.hand + 1 < self.segments.len() { self.hand + 1 } else { 0 };
        self.sweep(self.hand, reclaim)
    }

    pub(crate) fn count(&self) -> usize {
        self.segments.len()
    }

    fn sweep(&mut self, place: usize, reclaim: &mut impl FnMut(&Slot) -> bool) -> usize {
        self.put_front_back();
        self.touch(self.segments[place].slots.len());
        let removed = self.edit(place, |segment| segment.retain(|slot| !reclaim(slot)));
        self.len -= removed;
        removed
    }

    /// Sweeps a segment, and adds one unless that freed a good part: where one segment was full of what is no
    /// longer used, the others are too, and sweeping them in turn makes room.
    fn make_room(&mut self, reclaim: &mut impl FnMut(&Slot) -> bool) {
        let freed = self.sweep_next(reclaim);
        if freed * 4 >= self.segments[self.hand].len + freed && freed > 0 {
            return;
        }
        let added = self.segments.len();
        let split = added - (1 << added.ilog2());
        self.segments.push(Segment::default());
        let source = self.edit(split, std::mem::take);
        self.touch(source.slots.len());
        let (moved, kept): (Vec<Slot>, Vec<Slot>) =
            source.iter().partition(|slot| self.place(slot.hash()) == added);
        for (place, slots) in [(added, moved), (split, kept)] {
            self.edit(place, |segment| *segment = Segment::holding(&slots));
            self.touch(self.segments[place].slots.len());
        }
    }

    /// The segment of a hash: the highest bits that are kept choose it, so that the lowest are left to
    /// choose the place in it. With 2^k <= segments < 2^(k+1), those whose k+1 bits name no segment yet are
    /// in the one that k bits name.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        let bits = (hash >> 24) as usize & 0xff_ffff;
        let half = 1 << self.segments.len().ilog2();
        let wide = bits & (2 * half - 1);
        if wide < self.segments.len() { wide } else { bits & (half - 1) }
    }
}

/// Open addressing with linear probing over as many slots as are needed.
#[derive(Debug, Default)]
struct Segment {
    slots: Box<[Slot]>,
    len: usize,
}

impl Segment {
    fn holding(slots: &[Slot]) -> Self {
        // 70 % full, so that a third again can come before it is made longer.
        let room = slots.len() * 10 / 7 + 2;
        let mut segment = Self { slots: vec![Slot::VACANT; room].into(), len: 0 };
        slots.iter().for_each(|&slot| segment.put(slot));
        segment
    }

    fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.is_vacant())
    }

    /// Whether one more would leave probing too long: above 88 %.
    const fn is_full(&self) -> bool {
        (self.len + 1) * 8 > self.slots.len() * 7
    }

    #[inline]
    fn find(&self, hash: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        self.find_from(self.start(hash), hash)
    }

    /// [`find`](Self::find), for a slot that is most likely written then.
    #[inline]
    fn find_for_write(&self, hash: u64) -> Option<usize> {
        let start = self.start(hash);
        prefetch_for_write(self.slots.get(start)?);
        self.find_from(start, hash)
    }

    #[inline]
    fn find_from(&self, mut i: usize, hash: u64) -> Option<usize> {
        loop {
            if self.slots[i].is(hash) {
                return Some(i);
            }
            if self.slots[i].is_vacant() {
                return None;
            }
            i = self.after(i);
        }
    }

    /// Adds a key that is not there, for which there is room.
    fn put(&mut self, slot: Slot) {
        let mut i = self.start(slot.hash());
        while !self.slots[i].is_vacant() {
            i = self.after(i);
        }
        self.slots[i] = slot;
        self.len += 1;
    }

    /// Removes a key, and moves up those behind it that would no longer be found.
    fn remove(&mut self, hash: u64) -> Option<Slot> {
        let mut hole = self.find(hash)?;
        let removed = self.slots[hole];
        let mut i = hole;
        loop {
            i = self.after(i);
            if self.slots[i].is_vacant() {
                break;
            }
            let start = self.start(self.slots[i].hash());
            let stays = if hole < i { hole < start && start <= i } else { hole < start || start <= i };
            if !stays {
                self.slots[hole] = self.slots[i];
                hole = i;
            }
        }
        self.slots[hole] = Slot::VACANT;
        self.len -= 1;
        self.shorten();
        Some(removed)
    }

    /// Keeps the keys that `keep` says so of. How many went.
    fn retain(&mut self, mut keep: impl FnMut(&Slot) -> bool) -> usize {
        let gone = self.slots.iter_mut().filter(|slot| !slot.is_vacant() && !keep(slot));
        let removed = gone.map(|slot| *slot = Slot::VACANT).count();
        if removed > 0 {
            let kept: Vec<Slot> = self.iter().copied().collect();
            self.slots.fill(Slot::VACANT);
            self.len = 0;
            kept.into_iter().for_each(|slot| self.put(slot));
            self.shorten();
        }
        removed
    }

    /// Makes it as long as its keys need, with room for a third more. How many slots it has then.
    fn fit(&mut self) -> usize {
        let slots: Vec<Slot> = self.iter().copied().collect();
        *self = Self::holding(&slots);
        self.slots.len()
    }

    /// Gives back what it does not need, once less than half of it is taken.
    fn shorten(&mut self) {
        if self.len * 2 < self.slots.len() {
            self.fit();
        }
    }

    /// Where the search for a hash begins: its lowest bits, mixed, scaled to the length.
    #[inline]
    fn start(&self, hash: u64) -> usize {
        let mixed = ((hash << 16 >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) & 0xffff_ffff;
        ((mixed * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, i: usize) -> usize {
        if i + 1 < self.slots.len() { i + 1 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tollgate_testkit::Random;

    use super::*;

    #[test]
    fn segments_match_a_map_while_they_grow() {
        compare_with_a_map(400_000);
    }

    #[test]
    fn segments_match_a_map_while_keys_come_to_the_front() {
        compare_with_a_map(400); // few keys, so that the front is often asked for, charged, swept and removed
    }

    /// Applies random operations on `hashes` different keys to both.
    fn compare_with_a_map(hashes: u64) {
        let mut random = Random::new(1);
        let mut segments = Segments::new();
        let mut map: HashMap<u64, u64> = HashMap::new();
        let (mut most, mut has_front) = (0, false);
        for word in 0..300_000 {
            let hash = random.below(hashes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
            let before = (segments.bytes(), segments.growth());
            segments.take_touched();
            match random.below(6) {
                0 => assert_eq!(segments.remove(hash).map(|slot| slot.word), map.remove(&hash)),
                // The front is charged like any other slot.
                1 => {
                    let asked = if random.below(2) == 0 { segments.front.hash() } else { hash };
                    segments.vote(asked);
                    if let Some(slot) = segments.find_mut(asked) {
                        slot.word += 1;
                        *map.get_mut(&asked).unwrap() += 1;
                    }
                    let place = segments.begin_search(asked).and_then(|start| segments.locate(asked, start));
                    assert_eq!(place.map(|place| segments.at(place).word), map.get(&asked).copied());
                    has_front |= !segments.front.is_vacant();
                }
                2 => {
                    segments.sweep_next(&mut |slot| {
                        let is_swept = slot.word % 1000 == 0;
                        if is_swept {
                            assert_eq!(map.remove(&slot.hash()), Some(slot.word));
                        }
                        is_swept
                    });
                }
                3 if word % 16 == 0 => {
                    for slot in segments.around(hash) {
                        assert_eq!(map.get(&slot.hash()), Some(&slot.word));
                    }
                }
                _ if map.contains_key(&hash) => assert_eq!(segments.find(hash).unwrap().word, map[&hash]),
                _ => {
                    assert!(segments.find(hash).is_none());
                    segments.insert(Slot::new(hash, 7, word), |_| false);
                    map.insert(hash, word);
                }
            }
            most = most.max(segments.take_touched());
            assert_eq!(segments.len(), map.len());
            assert!(segments.bytes() <= before.0 + before.1, "{} bytes after {before:?}", segments.bytes());
        }
        let slots: usize = segments.segments.iter().map(|segment| segment.slots.len()).sum();
        assert_eq!(segments.slots, slots);
        assert!(map.iter().all(|(&hash, &word)| segments.find(hash).unwrap().word == word));
        assert_eq!(segments.iter().count(), map.len());
        assert!(most <= MOST_TOUCHED, "{most} slots touched at once");
        assert!(has_front);
    }

    #[test]
    fn the_key_that_most_plans_ask_for_comes_to_the_front() {
        let mut segments = Segments::new();
        (1..100).for_each(|hash| segments.insert(Slot::new(hash, 1, hash), |_| false));
        for round in 0..300 {
            segments.vote(7);
            segments.vote(7);
            segments.vote(1 + round % 99);
        }
        assert!(segments.front.is(7));
        segments.find_mut(7).unwrap().word = 1000;
        // Another key is asked for more often from now on.
        (0..2 * MOST_VOTES).for_each(|_| segments.vote(8));
        assert!(segments.front.is(8));
        assert_eq!(segments.find(7).unwrap().word, 1000);
        // A key that is not there leaves the front as it is.
        (0..2 * MOST_VOTES).for_each(|_| segments.vote(555));
        assert!(segments.front.is(8));
        assert_eq!(segments.remove(8).unwrap().word, 8);
        assert!(segments.find(8).is_none() && segments.front.is_vacant());
    }

    #[test]
    fn what_is_no_longer_used_makes_room_for_what_comes() {
        let mut random = Random::new(2);
        let mut segments = Segments::new();
        for now in 0..1_000_000 {
            let hash = random.bits() >> 16;
            // A key is used for as long as it takes a thousand others to come.
            segments.insert(Slot::new(hash, 1, now + 1000), |slot| slot.word <= now);
            assert!(segments.len() <= 2000, "{} keys at {now}", segments.len());
        }
        assert!(segments.bytes() < 2000 * 30, "{} bytes", segments.bytes());
    }

    #[test]
    fn a_key_takes_few_bytes_at_any_size() {
        let mut random = Random::new(3);
        let mut segments = Segments::new();
        for keys in 1..400_000_usize {
            let hash = random.bits() >> 16;
            segments.insert(Slot::new(hash, 1, 0), |_| false);
            if keys > 10_000 && keys.is_multiple_of(10_000) {
                assert!(segments.bytes() <= 22 * keys, "{} bytes for {keys} keys", segments.bytes());
            }
        }
    }
}
