//! The calls of the MPI library that we make, each wrapped so that a frame lives as long as the library may touch it.
//!
//! `rsmpi`'s own requests borrow their buffers for a lexical scope; ours are owned by flights that end in any order,
//! so this file speaks to the C interface that `rsmpi` binds. Only the owner thread may call it.

use crate::{Frame, Pool};
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::Communicator;
use mpi::traits::Equivalence;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The one MPI tag of our messages: the route on the frame says the rest.
const TAG: c_int = 1;

/// The library, initialised. Not `Send`: it stays on the thread that initialised it.
pub(super) struct Library {
    universe: mpi::environment::Universe,
    world: ffi::MPI_Comm,
    /// One line of a frame, so that counts stay far below 2^31.
    line: ffi::MPI_Datatype,
}

/// What the library said went wrong.
pub(super) type Result<T> = std::result::Result<T, String>;

/// A frame that is on its way: the library reads or writes it until `landed` says so.
pub(super) struct Flight {
    request: ffi::MPI_Request,
    frame: Frame,
    /// The process at the other side.
    pub peer: usize,
}

impl Flight {
    /// The frame, once the library is done with it.
    pub fn into_frame(self) -> Frame {
        self.frame
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
        let lines = frame.lines();
        let count = count(lines.len() / Frame::LINE)?;
        let mut request = MaybeUninit::uninit();
        // SAFETY: the flight owns the frame, whose bytes stay in place on the heap until the request is done.
        let code = unsafe {
            let (to, start) = (to as c_int, lines.as_ptr().cast());
            ffi::MPI_Isend(start, count, self.line, to, TAG, self.world, request.as_mut_ptr())
        };
        checked(code)?;
        // SAFETY: written by the successful call.
        Ok(Flight { request: unsafe { request.assume_init() }, frame, peer: to })
    }

    /// Starts to receive the next message of any process, if there is one.
    pub fn receive(&self, pool: &Arc<Pool>) -> Result<Option<Flight>> {
        let (mut found, mut lines) = (0, 0);
        let (mut message, mut status) = (MaybeUninit::uninit(), MaybeUninit::<ffi::MPI_Status>::uninit());
        // SAFETY: all places are ours; status and message are written when `found` is.
        let source = unsafe {
            let (message, status) = (message.as_mut_ptr(), status.as_mut_ptr());
            checked(ffi::MPI_Improbe(ffi::RSMPI_ANY_SOURCE, TAG, self.world, &mut found, message, status))?;
            if found == 0 {
                return Ok(None);
            }
            checked(ffi::MPI_Get_count(status, self.line, &mut lines))?;
            (*status).MPI_SOURCE as usize
        };
        let mut frame = pool.frame((lines.max(1) as usize - 1) * Frame::LINE);
        let mut request = MaybeUninit::uninit();
        // SAFETY: as in `send`; the frame has room for as many lines as the message has.
        let code = unsafe {
            let start = frame.lines_mut().as_mut_ptr().cast();
            ffi::MPI_Imrecv(start, lines, self.line, message.as_mut_ptr(), request.as_mut_ptr())
        };
        checked(code)?;
        // SAFETY: written by the successful call.
        Ok(Some(Flight { request: unsafe { request.assume_init() }, frame, peer: source }))
    }

    /// Whether the library is done with a flight; also lets it work on all others.
    pub fn landed(&self, flight: &mut Flight) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the request is one of ours and its buffer is alive.
        checked(unsafe { ffi::MPI_Test(&mut flight.request, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
        Ok(done != 0)
    }

    /// Leaves the job. Waits for all other processes to leave, so only with those that are known to come.
    pub fn finalize(self) {
        drop(self.universe);
    }

    /// Stays in the job until the process ends: the launcher will clean up.
    pub fn abandon(self) {
        std::mem::forget(self.universe);
    }
}

fn count(lines: usize) -> Result<c_int> {
    c_int::try_from(lines).map_err(|_| format!("a message of {} GB is too long for MPI", lines >> 24))
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
