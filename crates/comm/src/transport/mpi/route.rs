//! Where a frame goes: the half of its first line that the envelope leaves free.

use crate::Frame;
use crate::envelope::Envelope;
use bytemuck::{Pod, Zeroable};

/// What we call our way of writing frames; another number is another program on the other side.
const PROTOCOL: u32 = 0x4152_0002;

/// Where the route begins in a frame.
const AT: usize = size_of::<Envelope>();

/// What a frame is to the process that gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum What {
    /// A message for a rank.
    Message,
    /// A rank failed; the payload says why.
    Abort,
    /// A rank will send nothing more.
    Finish,
    /// For whom does a rank wait?
    Question,
    /// For this one, or for nobody.
    Answer,
}

/// From whom, to whom, in which conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Route {
    protocol: u32,
    what: u32,
    /// The session it belongs to.
    pub session: u32,
    /// The rank that sent it.
    pub from: u32,
    /// The rank that is to get it.
    pub to: u32,
    /// The number of its tag; of an abort, the exit code; of an answer, the rank that is awaited, from 1 on.
    pub tag: u32,
    /// The length of the payload: the wire carries whole lines.
    bytes: u64,
}

impl Route {
    /// A route within a session, from one rank to another.
    pub fn new(what: What, session: u32, [from, to]: [usize; 2], tag: u32) -> Self {
        let (from, to) = (from as u32, to as u32);
        Self { protocol: PROTOCOL, what: what as u32, session, from, to, tag, bytes: 0 }
    }

    /// Writes it on a frame.
    pub fn write(mut self, frame: &mut Frame) {
        self.bytes = frame.len() as u64;
        *bytemuck::from_bytes_mut(&mut frame.wire_mut()[AT..][..size_of::<Self>()]) = self;
    }

    /// Reads it from a frame that came in whole lines, and cuts the frame to its length. None when the sender is
    /// another program than this one.
    pub fn read(frame: &mut Frame) -> Option<Self> {
        let route: Self = *bytemuck::from_bytes(&frame.wire()[AT..][..size_of::<Self>()]);
        let known = route.protocol == PROTOCOL && route.what <= What::Answer as u32;
        let whole = frame.len() as u64 == route.bytes.next_multiple_of(Frame::LINE as u64);
        frame.truncate(route.bytes as usize);
        (known && whole).then_some(route)
    }

    /// The length, in whole lines, of the frame whose first line is `head`. None when the sender is another program
    /// than this one.
    pub fn announced(head: &Frame) -> Option<usize> {
        let route: &Self = bytemuck::from_bytes(&head.wire()[AT..][..size_of::<Self>()]);
        let bytes = usize::try_from(route.bytes).ok().filter(|_| route.protocol == PROTOCOL)?;
        bytes.checked_next_multiple_of(Frame::LINE)
    }

    /// What the frame is.
    pub fn what(&self) -> What {
        match self.what {
            0 => What::Message,
            1 => What::Abort,
            2 => What::Finish,
            3 => What::Question,
            _ => What::Answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn a_route_and_an_envelope_fit_into_the_first_line() {
        assert_eq!(AT + size_of::<Route>(), Frame::LINE);
    }

    #[test]
    fn a_route_arrives_as_it_was_written_and_a_foreign_one_is_told() {
        let route = Route::new(What::Abort, 7, [3, 1], 99);
        let mut frame = Pool::new().frame(70);
        route.write(&mut frame);
        let mut arrived = Pool::new().frame(128);
        arrived.lines_mut().copy_from_slice(frame.lines());
        let read = Route::read(&mut arrived).unwrap();
        assert_eq!((read.what(), read.session, read.from, read.to, read.tag), (What::Abort, 7, 3, 1, 99));
        assert_eq!(arrived.len(), 70);
        arrived.wire_mut()[AT] ^= 1;
        assert_eq!(Route::read(&mut arrived), None);
    }
}
