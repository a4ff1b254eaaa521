//! The calls of the MPI library that we make, each wrapped so that a frame lives as long as the library may touch it.
//!
//! `rsmpi`'s own requests borrow their buffers for a lexical scope; ours are owned by flights that end in any order,
//! so this file speaks to the C interface that `rsmpi` binds. Only the owner thread may call it.

use super::route::Route;
use crate::frame::LONGEST_MESSAGE;
use crate::{Frame, Pool};
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::Communicator;
use mpi::traits::Equivalence;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A frame that goes as one message.
const WHOLE: c_int = 1;
/// The first line of a frame that goes in pieces: its route says how long it is.
const HEAD: c_int = 2;
/// The next piece of such a frame.
const PIECE: c_int = 3;

/// The longest message, in lines.
const LONGEST: usize = LONGEST_MESSAGE / Frame::LINE;

/// The library, initialised. Not `Send`: it stays on the thread that initialised it.
pub(super) struct Library {
    universe: mpi::environment::Universe,
    world: ffi::MPI_Comm,
    /// One line of a frame.
    line: ffi::MPI_Datatype,
}

/// What the library said went wrong.
pub(super) type Result<T> = std::result::Result<T, String>;

/// A frame that is on its way: the library reads or writes it until all its pieces have landed.
pub(super) struct Flight {
    requests: VecDeque<ffi::MPI_Request>,
    frame: Frame,
    /// Lines for which there is no request yet.
    missing: usize,
    /// The process at the other side.
    pub peer: usize,
}

impl Flight {
    fn new(frame: Frame, peer: usize) -> Self {
        Self { requests: VecDeque::new(), missing: frame.lines().len() / Frame::LINE, frame, peer }
    }

    /// The frame, once the library is done with it.
    pub fn into_frame(self) -> Frame {
        self.frame
    }

    /// The bytes of the frame.
    pub fn bytes(&self) -> usize {
        self.frame.lines().len()
    }

    /// Where the next piece of `lines` lines begins; the flight counts on a request for it.
    fn next(&mut self, lines: usize) -> *mut u8 {
        let bytes = self.frame.lines_mut();
        let at = bytes.len() - self.missing * Frame::LINE;
        self.missing -= lines;
        bytes[at..at + lines * Frame::LINE].as_mut_ptr()
    }
}

impl Library {
    /// Joins the job; none if MPI is initialised already or cannot be.
    pub fn initialize() -> Option<Self> {
        let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Funneled)?;
        let world = universe.world().as_raw();
        let mut line = MaybeUninit::uninit();
        // SAFETY: MPI is initialised, `line` is written by the first call before the second reads it.
        let line = unsafe {
            ffi::MPI_Comm_set_errhandler(world, ffi::RSMPI_ERRORS_RETURN);
            ffi::MPI_Type_contiguous(
                Frame::LINE as c_int,
                u8::equivalent_datatype().as_raw(),
                line.as_mut_ptr(),
            );
            ffi::MPI_Type_commit(line.as_mut_ptr());
            line.assume_init()
        };
        Some(Self { universe, world, line })
    }

    /// Which process this is.
    pub fn process(&self) -> usize {
        self.universe.world().rank() as usize
    }

    /// How many processes there are.
    pub fn processes(&self) -> usize {
        self.universe.world().size() as usize
    }

    /// Starts to send `frame`.
    pub fn send(&self, to: usize, frame: Frame) -> Result<Flight> {
        let mut flight = Flight::new(frame, to);
        let lines = flight.missing;
        if lines <= LONGEST {
            self.send_piece(&mut flight, lines, WHOLE)?;
            return Ok(flight);
        }
        self.send_piece(&mut flight, 1, HEAD)?;
        while flight.missing > 0 {
            let lines = flight.missing.min(LONGEST);
            self.send_piece(&mut flight, lines, PIECE)?;
        }
        Ok(flight)
    }

    fn send_piece(&self, flight: &mut Flight, lines: usize, tag: c_int) -> Result<()> {
        let start = flight.next(lines).cast();
        let mut request = MaybeUninit::uninit();
        // SAFETY: the flight owns the frame, whose bytes stay in place on the heap until the request is done.
        let request = unsafe {
            let (to, lines) = (flight.peer as c_int, lines as c_int);
            checked(ffi::MPI_Isend(start, lines, self.line, to, tag, self.world, request.as_mut_ptr()))?;
            request.assume_init()
        };
        flight.requests.push_back(request);
        Ok(())
    }

    /// Starts to receive the next frame of any process, if one has begun to arrive. Whether there was one.
    ///
    /// The beginning of a long frame says how long it is, so that all its pieces are asked for at once: the library
    /// then writes them where they belong as they come, instead of keeping them until they are asked for.
    pub fn receive(&self, pool: &Arc<Pool>, flights: &mut [VecDeque<Flight>]) -> Result<bool> {
        let Some((mut message, from, tag, lines)) = self.probe()? else {
            return Ok(false);
        };
        let mut first = pool.frame((lines.max(1) - 1) * Frame::LINE);
        let start = first.lines_mut().as_mut_ptr().cast();
        let (count, mut request) = (lines as c_int, MaybeUninit::uninit());
        // SAFETY: as much room as the message has, in a frame that its flight keeps until the request is done.
        let request = unsafe {
            checked(ffi::MPI_Imrecv(start, count, self.line, &mut message, request.as_mut_ptr()))?;
            request.assume_init()
        };
        let mut flight = Flight { requests: VecDeque::from([request]), frame: first, missing: 0, peer: from };
        if tag == HEAD {
            flight = self.receive_pieces(pool, flight)?;
        }
        flights[from].push_back(flight);
        Ok(true)
    }

    /// The next message that has arrived: itself, its sender, its tag and its lines. Pieces are never among them.
    fn probe(&self) -> Result<Option<(ffi::MPI_Message, usize, c_int, usize)>> {
        let (mut found, mut lines) = (0, 0);
        let (mut message, mut status) = (MaybeUninit::uninit(), MaybeUninit::<ffi::MPI_Status>::uninit());
        // SAFETY: constants of the library.
        let any = unsafe { (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG) };
        // SAFETY: all places are ours; status and message are written when `found` is.
        unsafe {
            let places = (message.as_mut_ptr(), status.as_mut_ptr());
            checked(ffi::MPI_Improbe(any.0, any.1, self.world, &mut found, places.0, places.1))?;
            if found == 0 {
                return Ok(None);
            }
            checked(ffi::MPI_Get_count(places.1, self.line, &mut lines))?;
            let status = status.assume_init();
            let from = status.MPI_SOURCE as usize;
            Ok(Some((message.assume_init(), from, status.MPI_TAG, lines.max(0) as usize)))
        }
    }

    /// The flight of the frame whose first line is in `head`, with all its pieces asked for.
    fn receive_pieces(&self, pool: &Arc<Pool>, mut head: Flight) -> Result<Flight> {
        // One line, which is here already: this does not wait.
        while !self.landed(&mut head)? {}
        let bytes = Route::announced(&head.frame).ok_or("a message of another program came")?;
        let mut flight = Flight::new(pool.frame(bytes), head.peer);
        flight.frame.lines_mut()[..Frame::LINE].copy_from_slice(head.frame.lines());
        flight.missing -= 1;
        while flight.missing > 0 {
            let lines = flight.missing.min(LONGEST);
            let (start, count) = (flight.next(lines).cast(), lines as c_int);
            let mut request = MaybeUninit::uninit();
            // SAFETY: as in `send_piece`. Pieces of one process match receives in the order of both.
            let request = unsafe {
                let from = flight.peer as c_int;
                checked(ffi::MPI_Irecv(
                    start,
                    count,
                    self.line,
                    from,
                    PIECE,
                    self.world,
                    request.as_mut_ptr(),
                ))?;
                request.assume_init()
            };
            flight.requests.push_back(request);
        }
        Ok(flight)
    }

    /// Whether the library is done with a flight; also lets it work on all others.
    pub fn landed(&self, flight: &mut Flight) -> Result<bool> {
        while let Some(request) = flight.requests.front_mut() {
            let mut done = 0;
            // SAFETY: the request is one of ours and its buffer is alive.
            checked(unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
            if done == 0 {
                return Ok(false);
            }
            flight.requests.pop_front();
        }
        Ok(true)
    }

    /// Leaves the job. Waits for all other processes to leave, so only with those that are known to come.
    pub fn finalize(mut self) {
        // SAFETY: no request uses the type any more, and MPI has not been left yet.
        unsafe { ffi::MPI_Type_free(&mut self.line) };
        drop(self.universe);
    }

    /// Stays in the job until the process ends: the launcher will clean up.
    pub fn abandon(self) {
        std::mem::forget(self.universe);
    }
}

fn checked(code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: the buffer is as long as the library may want.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let text = &text[..(length.max(0) as usize).min(text.len())];
    Err(String::from_utf8_lossy(text).into_owned())
}
