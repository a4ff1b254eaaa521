//! What all ranks do together. Results depend on the ranks' data, never on who was faster.
//!
//! Every collective begins with one frame from every rank to every other. Data ride on it where there are data; in
//! any case its envelope says which collective the sender is in, so that two ranks in different ones find out at
//! their first meeting instead of hanging or mistaking one's data for the other's. This makes `broadcast` and
//! `gather` wait for all ranks, like a barrier.
//!
//! Cost per rank with P ranks: P - 1 messages (of long arrays that for each of their [frames](crate::frames_of) or [`Stretches`],
//! and `all_reduce` twice that); bytes as given below.

use crate::envelope::{Envelope, Operation};
use crate::frame::items_of;
use crate::{Comm, Error, Frame, Kind, Result, Tag};
use bytemuck::Pod;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Up to this many bytes, sending everything to everyone beats the second round of messages it saves.
const SHORT: usize = 2048;

/// How many frames of a long array are on their way to other ranks while one is read: fewer leave the wire idle while a rank
/// sleeps, more do not fit a cache.
const AHEAD: usize = 4;

/// Numbers that ranks add up one stretch after the other. How many there are in each stretch is the same on all ranks.
pub trait Stretches<T> {
    /// Numbers in all stretches together.
    fn numbers(&self) -> usize;

    /// How many stretches there are.
    fn count(&self) -> usize;

    /// The numbers of a stretch, which are computed now if they are asked for the first time: stretches are, one after the other.
    fn stretch(&mut self, number: usize) -> &mut [T];
}

impl Comm {
    /// Returns when every rank has come here.
    pub fn barrier(&self) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        let meeting = self.meeting::<()>(Operation::Barrier);
        self.meet(&meeting, Kind::Control, |_| self.frame(0), |_, _| Ok(()))
    }

    /// Copies `values` of rank `root` to all ranks; all bring the same length.
    pub fn broadcast<T: Pod>(&self, root: usize, values: &mut [T], kind: Kind) -> Result<()> {
        self.check_rank(root)?;
        if self.size() == 1 {
            return Ok(());
        }
        let meeting = self.meeting::<T>(Operation::Broadcast).with_root(root).with_length(values.len());
        let mine: &[T] = if self.rank() == root { values } else { &[] };
        self.give(&meeting, kind, |_| self.filled(mine))?;
        self.hear(&meeting, kind, |peer, frame| {
            if peer == root {
                self.copy_into(values, &frame, &meeting)?;
            }
            Ok(())
        })
    }

    /// Every rank's `values`, in rank order, at rank `root`; `None` elsewhere. Lengths may differ.
    pub fn gather<T: Pod>(&self, root: usize, values: &[T], kind: Kind) -> Result<Option<Vec<Vec<T>>>> {
        self.check_rank(root)?;
        let mut gathered = self.own_row(values);
        if self.size() > 1 {
            let meeting = self.meeting::<T>(Operation::Gather).with_root(root);
            let give = |peer| self.filled(if peer == root { values } else { &[] });
            self.meet(&meeting, kind, give, |peer, frame| {
                gathered[peer] = frame.values().to_vec();
                Ok(())
            })?;
        }
        Ok((self.rank() == root).then_some(gathered))
    }

    /// Every rank's `values`, in rank order, on all ranks. Lengths may differ.
    pub fn all_gather<T: Pod>(&self, values: &[T], kind: Kind) -> Result<Vec<Vec<T>>> {
        let mut gathered = self.own_row(values);
        if self.size() > 1 {
            let meeting = self.meeting::<T>(Operation::AllGather);
            self.meet(
                &meeting,
                kind,
                |_| self.filled(values),
                |peer, frame| {
                    gathered[peer] = frame.values().to_vec();
                    Ok(())
                },
            )?;
        }
        Ok(gathered)
    }

    /// Gives `outgoing[r]` to rank `r`, and returns what each rank gave to this one, in rank order.
    pub fn all_to_all<T: Pod>(&self, mut outgoing: Vec<Vec<T>>, kind: Kind) -> Result<Vec<Vec<T>>> {
        let size = self.size();
        if outgoing.len() != size {
            let message = format!("all_to_all on {} ranks got {} lists", self.size(), outgoing.len());
            return Err(
                self.fail(Error::Usage { message, hint: "give one list per rank, empty ones included" })
            );
        }
        if size == 1 {
            return Ok(outgoing);
        }
        let meeting = self.meeting::<T>(Operation::AllToAll);
        let given: Vec<usize> = outgoing.iter().map(Vec::len).collect();
        let mut heard = given.clone();
        let mut open: Vec<bool> = (0..size).map(|peer| peer != self.rank()).collect();
        let ahead = self.ahead();
        for round in 0..ahead {
            self.give_frame(&meeting, &outgoing, &given, round, kind)?;
        }
        for round in 0.. {
            let gave = self.give_frame(&meeting, &outgoing, &given, round + ahead, kind)?;
            for (peer, open) in open.iter_mut().enumerate().filter(|(_, open)| **open) {
                let frame = self.hear_one(peer, &meeting, kind)?;
                heard[peer] = put_frame(&mut outgoing[peer], frame.values(), round);
                *open = frame.len() == items_of(size_of::<T>()) * size_of::<T>();
            }
            if !gave && !open.contains(&true) {
                break;
            }
        }
        outgoing.iter_mut().zip(heard).for_each(|(list, heard)| list.truncate(heard));
        Ok(outgoing)
    }

    /// Gives every other rank frame `round` of its list, which has `given` numbers; whether any list has one. The last frame
    /// of a list, which may be empty, is the first that is not full.
    fn give_frame<T: Pod>(
        &self,
        meeting: &Envelope,
        outgoing: &[Vec<T>],
        given: &[usize],
        round: usize,
        kind: Kind,
    ) -> Result<bool> {
        let items = items_of(size_of::<T>());
        let mut any = false;
        for peer in (1..self.size()).map(|step| (self.rank() + step) % self.size()) {
            let Some(rest) = outgoing[peer].get(round * items..given[peer]) else { continue };
            self.give_one(peer, meeting, kind, self.filled(&rest[..rest.len().min(items)]))?;
            any = true;
        }
        Ok(any)
    }

    /// Replaces `values` by their sum over ranks 0, 1, …, added in this order: the same bits on all ranks, always.
    ///
    /// Sends 2·n·(P-1)/P numbers per rank (n·(P-1) if they are few).
    pub fn all_reduce_sum_f32(&self, values: &mut [f32], kind: Kind) -> Result<()> {
        self.all_reduce(Operation::AllReduceSumF32, values, kind, |a, b| a + b)
    }

    /// Like [`all_reduce_sum_f32`](Self::all_reduce_sum_f32).
    pub fn all_reduce_sum_f64(&self, values: &mut [f64], kind: Kind) -> Result<()> {
        self.all_reduce(Operation::AllReduceSumF64, values, kind, |a, b| a + b)
    }

    /// Like [`all_reduce_sum_f32`](Self::all_reduce_sum_f32), modulo 2^64.
    pub fn all_reduce_sum_u64(&self, values: &mut [u64], kind: Kind) -> Result<()> {
        self.all_reduce(Operation::AllReduceSumU64, values, kind, u64::wrapping_add)
    }

    /// Replaces each of `values` by its maximum over the ranks, e.g. to agree on a number of batches.
    pub fn all_reduce_max_u64(&self, values: &mut [u64], kind: Kind) -> Result<()> {
        self.all_reduce(Operation::AllReduceMaxU64, values, kind, u64::max)
    }

    /// Replaces the numbers of all `stretches` by their sums, like [`all_reduce_sum_f32`](Self::all_reduce_sum_f32), with some on
    /// the wire while others are being computed. So many are sent `ahead` of the one that is summed, the same number on all ranks; as many
    /// as with any array, at most.
    pub fn all_reduce_sum_stretches(
        &self,
        stretches: &mut impl Stretches<f32>,
        ahead: usize,
        kind: Kind,
    ) -> Result<()> {
        if self.size() == 1 {
            for number in 0..stretches.count() {
                stretches.stretch(number);
            }
            return Ok(());
        }
        let meeting = self.meeting::<f32>(Operation::AllReduceSumF32).with_length(stretches.numbers());
        self.reduce_stretches(&meeting, stretches, ahead, kind, |a, b| a + b)
    }

    /// The longest stretch of numbers of type `T` that is summed in frames of the usual length.
    pub fn longest_stretch<T>(&self) -> usize {
        items_of(size_of::<T>()) * self.size()
    }

    fn all_reduce<T: Pod>(
        &self,
        operation: Operation,
        values: &mut [T],
        kind: Kind,
        join: impl Fn(T, T) -> T,
    ) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        let meeting = self.meeting::<T>(operation).with_length(values.len());
        if size_of_val(values) > SHORT {
            let mut cut = Cut { length: self.longest_stretch::<T>(), values };
            return self.reduce_stretches(&meeting, &mut cut, AHEAD, kind, join);
        }
        self.give(&meeting, kind, |_| self.filled(values))?;
        self.join(&meeting, values, kind, join)
    }

    /// Every stretch is shared out, then joined and given back, then heard; while one is joined, the next are on their way.
    fn reduce_stretches<T: Pod>(
        &self,
        meeting: &Envelope,
        stretches: &mut impl Stretches<T>,
        ahead: usize,
        kind: Kind,
        join: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let (count, ahead) = (stretches.count(), ahead.clamp(1, self.ahead()));
        for number in 0..ahead.min(count) {
            self.share_out(meeting, stretches.stretch(number), kind)?;
        }
        for number in 0..count + ahead {
            if number + ahead < count {
                self.share_out(meeting, stretches.stretch(number + ahead), kind)?;
            }
            if number < count {
                let joined = stretches.stretch(number);
                let own = self.slice(joined.len(), self.rank());
                self.join(meeting, &mut joined[own.clone()], kind, &join)?;
                self.give(meeting, kind, |_| self.filled(&joined[own.clone()]))?;
            }
            if number >= ahead {
                self.hear_joined(meeting, stretches.stretch(number - ahead), kind)?;
            }
        }
        Ok(())
    }

    /// How many frames to each other rank are on their way while one is read.
    fn ahead(&self) -> usize {
        (AHEAD / (self.size() - 1)).max(1)
    }

    /// The part of `count` numbers that `rank` joins.
    fn slice(&self, count: usize, rank: usize) -> Range<usize> {
        rank * count / self.size()..(rank + 1) * count / self.size()
    }

    /// Sends every other rank the slice of `stretch` it is to join.
    fn share_out<T: Pod>(&self, meeting: &Envelope, stretch: &[T], kind: Kind) -> Result<()> {
        self.give(meeting, kind, |peer| self.filled(&stretch[self.slice(stretch.len(), peer)]))
    }

    /// Fills `stretch` with the slices that the other ranks have joined.
    fn hear_joined<T: Pod>(&self, meeting: &Envelope, stretch: &mut [T], kind: Kind) -> Result<()> {
        let count = stretch.len();
        self.hear(meeting, kind, |peer, frame| {
            self.copy_into(&mut stretch[self.slice(count, peer)], &frame, meeting)
        })
    }

    /// Joins `mine` with what every other rank has for it, in rank order.
    fn join<T: Pod>(
        &self,
        meeting: &Envelope,
        mine: &mut [T],
        kind: Kind,
        join: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let bytes = size_of_val(mine);
        if self.rank() == 0 {
            return (1..self.size()).try_for_each(|rank| {
                fold(mine, self.hear_exact(rank, meeting, kind, bytes)?.values(), &join);
                Ok(())
            });
        }
        let mut joined = self.hear_exact(0, meeting, kind, bytes)?;
        for rank in 1..self.size() {
            if rank == self.rank() {
                fold(joined.values_mut(), mine, &join);
            } else {
                fold(joined.values_mut(), self.hear_exact(rank, meeting, kind, bytes)?.values(), &join);
            }
        }
        mine.copy_from_slice(joined.values());
        Ok(())
    }

    /// The envelope of the collective that this rank enters now.
    fn meeting<T>(&self, operation: Operation) -> Envelope {
        Envelope::collective::<T>(operation, self.collectives.fetch_add(1, Ordering::Relaxed))
    }

    /// One frame to every other rank, then one from every other rank in rank order.
    fn meet(
        &self,
        meeting: &Envelope,
        kind: Kind,
        give: impl FnMut(usize) -> Frame,
        hear: impl FnMut(usize, Frame) -> Result<()>,
    ) -> Result<()> {
        self.give(meeting, kind, give)?;
        self.hear(meeting, kind, hear)
    }

    /// One frame to every other rank, starting with the next so that not all knock at the same door.
    fn give(&self, meeting: &Envelope, kind: Kind, mut give: impl FnMut(usize) -> Frame) -> Result<()> {
        for step in 1..self.size() {
            let peer = (self.rank() + step) % self.size();
            self.give_one(peer, meeting, kind, give(peer))?;
        }
        Ok(())
    }

    fn give_one(&self, peer: usize, meeting: &Envelope, kind: Kind, mut frame: Frame) -> Result<()> {
        frame.address(*meeting);
        self.post(peer, Tag::COLLECTIVE, kind, frame)
    }

    /// One frame from every other rank, in rank order.
    fn hear(
        &self,
        meeting: &Envelope,
        kind: Kind,
        mut hear: impl FnMut(usize, Frame) -> Result<()>,
    ) -> Result<()> {
        for peer in (0..self.size()).filter(|&peer| peer != self.rank()) {
            hear(peer, self.hear_one(peer, meeting, kind)?)?;
        }
        Ok(())
    }

    /// The next collective frame from `peer`, which must be in the same collective.
    fn hear_one(&self, peer: usize, meeting: &Envelope, kind: Kind) -> Result<Frame> {
        let frame = self.await_frame(peer, Tag::COLLECTIVE, kind, meeting)?;
        if frame.envelope() == meeting {
            return Ok(frame);
        }
        let (theirs, ours) = (frame.envelope().to_string(), meeting.to_string());
        Err(self.fail(Error::Mismatch { rank: self.rank(), peer, theirs, ours, phase: self.phase() }))
    }

    fn filled<T: Pod>(&self, values: &[T]) -> Frame {
        let mut frame = self.frame(size_of_val(values));
        frame.values_mut().copy_from_slice(values);
        frame
    }

    fn copy_into<T: Pod>(&self, values: &mut [T], frame: &Frame, meeting: &Envelope) -> Result<()> {
        self.check_length(size_of_val(values), frame, meeting)?;
        values.copy_from_slice(frame.values());
        Ok(())
    }

    fn hear_exact(&self, peer: usize, meeting: &Envelope, kind: Kind, bytes: usize) -> Result<Frame> {
        let frame = self.hear_one(peer, meeting, kind)?;
        self.check_length(bytes, &frame, meeting)?;
        Ok(frame)
    }

    fn check_length(&self, expected: usize, frame: &Frame, meeting: &Envelope) -> Result<()> {
        if frame.len() == expected {
            return Ok(());
        }
        let what = format!("a frame of {meeting} on rank {}", self.rank());
        Err(self.fail(Error::Length { what, expected, found: frame.len() }))
    }

    /// A row per rank, of which only this rank's is filled.
    fn own_row<T: Pod>(&self, values: &[T]) -> Vec<Vec<T>> {
        let mut rows = vec![Vec::new(); self.size()];
        rows[self.rank()] = values.to_vec();
        rows
    }
}

/// Puts frame `round` of what a rank gave where the same frame of what it was given stood, which has left; where it ends.
fn put_frame<T: Pod>(list: &mut Vec<T>, frame: &[T], round: usize) -> usize {
    let start = round * items_of(size_of::<T>());
    let end = start + frame.len();
    if list.len() < end {
        list.resize(end, T::zeroed());
    }
    list[start..end].copy_from_slice(frame);
    end
}

/// An array that is there, cut into stretches of one length, the last one shorter.
struct Cut<'a, T> {
    values: &'a mut [T],
    length: usize,
}

impl<T> Stretches<T> for Cut<'_, T> {
    fn numbers(&self) -> usize {
        self.values.len()
    }

    fn count(&self) -> usize {
        self.values.len().div_ceil(self.length)
    }

    fn stretch(&mut self, number: usize) -> &mut [T] {
        let start = number * self.length;
        let end = self.values.len().min(start + self.length);
        &mut self.values[start..end]
    }
}

/// `joined[i] = join(joined[i], part[i])`.
fn fold<T: Pod>(joined: &mut [T], part: &[T], join: impl Fn(T, T) -> T) {
    for (joined, part) in joined.iter_mut().zip(part) {
        *joined = join(*joined, *part);
    }
}
