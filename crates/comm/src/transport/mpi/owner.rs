//! The thread that owns MPI: it starts what ranks want sent, takes in what arrives, and is the last to leave.
//!
//! The library makes progress only while it is called, so the owner keeps calling: without a pause while something
//! moves, then at intervals that grow with the silence, and seldom while no rank of this process waits for anything: every
//! look takes the processor from a rank that computes. An order from a rank wakes it at once, and so does one that comes to
//! wait. Whoever orders something to be sent makes room for it: a scheduler would let a rank that computes use up its
//! milliseconds first.

use super::lane::Lane;
use super::library::{Flight, Library};
use super::route::Route;
use super::session::Session;
use crate::transport::Abort;
use crate::{Error, Frame, Pool, Result, lock};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Looks without a pause before the owner starts to rest.
const PATIENCE: u32 = 5;
/// The first rest between two looks while a rank waits, and while all compute: the sockets' buffers hold far more than arrives
/// meanwhile.
const SHORT_REST: Duration = Duration::from_micros(60);
const REST: Duration = Duration::from_micros(100);
/// Looks after which a rest is twice as long, and the longest: ranks that compute need the processor more than an owner that
/// finds nothing, and the first message after a long silence can wait for most of a millisecond.
const LOOKS: u32 = 32;
const MOST_REST: Duration = Duration::from_micros(800);
/// By how much a rest may be longer than it was asked to be: Linux takes twice the short one where it is not told.
const SLACK: Duration = Duration::from_micros(1);
/// The rest while nobody waits and nothing is on its way out, after so many looks at which nothing moved: what arrives
/// meanwhile fits into the buffers of the sockets.
const QUIET_REST: Duration = Duration::from_millis(2);
const QUIET: u32 = 16;
/// How long a process that ends waits for its last messages and for the others.
const FAREWELL: Duration = Duration::from_secs(5);

/// The owner of this process, started on first use.
static OWNER: OnceLock<Result<Owner>> = OnceLock::new();

/// What other threads know of the owner.
pub(super) struct Owner {
    /// Which process this is.
    pub process: usize,
    /// How many there are.
    pub processes: usize,
    /// The buffers of this process.
    pub pool: Arc<Pool>,
    orders: Arc<Orders>,
    sessions: Mutex<u32>,
}

/// What the owner is to do.
struct Orders {
    queue: Mutex<VecDeque<Order>>,
    news: Condvar,
    /// How many threads of this process wait for a frame.
    waiting: AtomicUsize,
    /// Whether the owner rests for long, so that whoever comes to wait has to wake it.
    asleep: AtomicBool,
    /// Some process may never answer again: do not wait for all.
    distrust: AtomicBool,
    left: Mutex<bool>,
    leaving: Condvar,
}

enum Order {
    Send(usize, Frame),
    Open(Arc<Session>),
    Leave,
}

/// The owner of this process; joins the MPI job when first asked.
pub(super) fn owner() -> Result<&'static Owner> {
    OWNER.get_or_init(start).as_ref().map_err(Clone::clone)
}

fn start() -> Result<Owner> {
    let orders = Arc::new(Orders {
        queue: Mutex::default(),
        news: Condvar::new(),
        waiting: AtomicUsize::new(0),
        asleep: AtomicBool::new(false),
        distrust: AtomicBool::new(false),
        left: Mutex::new(false),
        leaving: Condvar::new(),
    });
    let pool = Pool::new();
    let (tell, joined) = mpsc::channel();
    let (shared, buffers) = (Arc::clone(&orders), Arc::clone(&pool));
    let work = move || {
        let library = Library::initialize();
        let place = library.as_ref().map(|library| (library.process(), library.processes()));
        let _ = tell.send(place);
        if let Some(library) = library {
            rest_precisely();
            Loop::new(library, buffers, shared).run();
        }
    };
    let failed = |what: &str| Error::Usage {
        message: format!("cannot join the MPI job: {what}"),
        hint: "start archi by `mpirun`, `srun --mpi=pmix` or `archi launch`, one MPI library on all hosts",
    };
    thread::Builder::new().name("mpi".into()).spawn(work).map_err(|cause| failed(&cause.to_string()))?;
    let (process, processes) =
        joined.recv().ok().flatten().ok_or_else(|| failed("the library did not start"))?;
    // SAFETY: the handler only uses what lives as long as the process.
    unsafe { libc::atexit(leave_at_exit) };
    Ok(Owner { process, processes, pool, orders, sessions: Mutex::new(0) })
}

/// Has the rests of this thread last as long as they are asked to; where that is not possible, they are longer.
fn rest_precisely() {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes a number.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, SLACK.as_nanos() as libc::c_ulong)
    };
}

/// However the process ends in order, its last messages go out and MPI is left in order where that is possible.
extern "C" fn leave_at_exit() {
    if let Some(Ok(owner)) = OWNER.get() {
        owner.orders.give(Order::Leave);
        let until = Instant::now() + 2 * FAREWELL;
        let mut left = lock(&owner.orders.left);
        while !*left && Instant::now() < until {
            let wait = owner.orders.leaving.wait_timeout(left, FAREWELL / 10);
            left = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Owner {
    /// Opens the next session.
    pub fn open(&self, ranks: usize) -> Arc<Session> {
        let mut sessions = lock(&self.sessions);
        *sessions += 1;
        let session = Arc::new(Session::new(*sessions, ranks, self.process, self.processes));
        self.orders.give(Order::Open(Arc::clone(&session)));
        session
    }

    /// Has `frame` sent to another process.
    pub fn send(&self, process: usize, route: Route, mut frame: Frame) {
        route.write(&mut frame);
        self.orders.give(Order::Send(process, frame));
        thread::yield_now();
    }

    /// Looks often for as long as what this returns lives.
    pub fn attend(&self) -> Attention<'_> {
        self.orders.expect();
        Attention(&self.orders)
    }

    /// From now on no process is waited for.
    pub fn distrust(&self) {
        self.orders.distrust.store(true, Ordering::Relaxed);
    }
}

/// The owner's, while someone waits for a frame.
pub(super) struct Attention<'a>(&'a Orders);

impl Drop for Attention<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Orders {
    fn expect(&self) {
        // Under the lock, so that an owner that is about to rest notices.
        let queue = lock(&self.queue);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        if self.asleep.load(Ordering::Relaxed) {
            self.news.notify_one();
        }
    }

    fn give(&self, order: Order) {
        lock(&self.queue).push_back(order);
        self.news.notify_one();
    }
}

/// The owner at work.
struct Loop {
    library: Library,
    pool: Arc<Pool>,
    orders: Arc<Orders>,
    /// By receiver.
    outgoing: Vec<Lane>,
    /// By sender, in the order in which they were sent.
    incoming: Vec<VecDeque<Flight>>,
    session: Option<Arc<Session>>,
    /// What belongs to sessions that this process has not opened yet.
    early: Vec<(Route, Frame)>,
    leave_by: Option<Instant>,
}

impl Loop {
    fn new(library: Library, pool: Arc<Pool>, orders: Arc<Orders>) -> Self {
        let outgoing = (0..library.processes()).map(|_| Lane::default()).collect();
        let incoming = (0..library.processes()).map(|_| VecDeque::new()).collect();
        Self { library, pool, orders, outgoing, incoming, session: None, early: Vec::new(), leave_by: None }
    }

    fn run(mut self) {
        let mut idle = 0u32;
        let orderly = loop {
            match self.turn() {
                Ok(true) => idle = 0,
                Ok(false) => idle = idle.saturating_add(1),
                Err(cause) => {
                    self.fail(&cause);
                    break false;
                }
            }
            if let Some(by) = self.leave_by {
                let flushed = self.is_flushed();
                if flushed || Instant::now() > by {
                    break flushed && !self.orders.distrust.load(Ordering::Relaxed);
                }
            }
            idle = self.rest(idle);
        };
        if orderly {
            self.library.finalize();
        } else {
            self.library.abandon();
        }
        *lock(&self.orders.left) = true;
        self.orders.leaving.notify_all();
    }

    /// One look at everything; whether anything moved.
    fn turn(&mut self) -> Result<bool, String> {
        let mut moved = self.follow_orders();
        for (peer, lane) in self.outgoing.iter_mut().enumerate() {
            moved |= lane.advance(&self.library, peer)?;
        }
        while self.library.receive(&self.pool, &mut self.incoming)? {
            moved = true;
        }
        for peer in 0..self.incoming.len() {
            while let Some(first) = self.incoming[peer].front_mut() {
                if !self.library.landed(first)? {
                    break;
                }
                if let Some(flight) = self.incoming[peer].pop_front() {
                    self.take_in(peer, flight.into_frame())?;
                }
                moved = true;
            }
        }
        Ok(moved)
    }

    fn follow_orders(&mut self) -> bool {
        let mut moved = false;
        loop {
            let order = lock(&self.orders.queue).pop_front();
            match order {
                None => return moved,
                Some(Order::Send(to, frame)) => self.outgoing[to].push(frame),
                Some(Order::Open(session)) => self.open(session),
                Some(Order::Leave) => self.leave_by = Some(Instant::now() + FAREWELL),
            }
            moved = true;
        }
    }

    /// Whether nothing is on its way out.
    fn is_flushed(&self) -> bool {
        self.outgoing.iter().all(Lane::is_empty)
    }

    fn open(&mut self, session: Arc<Session>) {
        self.session = Some(session);
        for (route, frame) in std::mem::take(&mut self.early) {
            self.sort_in(route, frame);
        }
    }

    fn take_in(&mut self, peer: usize, mut frame: Frame) -> Result<(), String> {
        let foreign = || format!("process {peer} is another version of archi: install the same on all hosts");
        let route = Route::read(&mut frame).ok_or_else(foreign)?;
        self.sort_in(route, frame);
        Ok(())
    }

    /// To the session it belongs to; what is left of an earlier one is dropped.
    fn sort_in(&mut self, route: Route, frame: Frame) {
        let open = self.session.as_ref().map_or(0, |session| session.number);
        match &self.session {
            Some(session) if route.session == open => {
                if let Some(answer) = session.take_in(route, frame) {
                    let mut frame = self.pool.frame(0);
                    answer.write(&mut frame);
                    self.orders.give(Order::Send(session.process_of(answer.to as usize), frame));
                }
            }
            _ if route.session > open => self.early.push((route, frame)),
            _ => {}
        }
    }

    /// The library failed: the ranks of this process end, and there is no one left to talk to.
    fn fail(&mut self, cause: &str) {
        self.orders.distrust.store(true, Ordering::Relaxed);
        if let Some(session) = &self.session {
            let rank = session.local().start;
            session.abort(Abort::new(rank, format!("the exchange between processes failed: {cause}")));
        }
    }

    /// Rests after so many looks at which nothing moved; how many count from now on.
    fn rest(&self, idle: u32) -> u32 {
        if idle < PATIENCE {
            thread::yield_now();
            return idle;
        }
        let queue = lock(&self.orders.queue);
        if !queue.is_empty() {
            return idle;
        }
        let awaited = self.orders.waiting.load(Ordering::Relaxed) > 0;
        if awaited || !self.is_flushed() || idle < QUIET {
            let rest = if awaited { SHORT_REST } else { REST };
            let rest = rest.saturating_mul(2u32.saturating_pow(idle / LOOKS)).min(MOST_REST);
            drop(self.orders.news.wait_timeout(queue, rest));
            return idle;
        }
        self.orders.asleep.store(true, Ordering::Relaxed);
        drop(self.orders.news.wait_timeout(queue, QUIET_REST));
        self.orders.asleep.store(false, Ordering::Relaxed);
        // Whoever waits from now on finds an owner that looks often.
        QUIET
    }
}
