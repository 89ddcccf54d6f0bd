//! How long a wait may last on this machine now. Deadlines are written for a machine of the usual speed that does nothing else: on a slower or
//! busier machine a second counts for less.

use std::fmt;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Time between the first polls. Later polls come less often: a poll takes the same processors as the awaited work.
const POLL: Duration = Duration::from_millis(120);
/// Time between the last polls of a long wait.
const SELDOM: Duration = Duration::from_secs(1);
/// The least time that a poll may take: an answer that is on its way is worth more than the second.
const LAST_LOOK: Duration = Duration::from_secs(5);
/// The most that a wait is stretched on a busy machine: a hanging test has to end before its own time-out.
const MOST: f64 = 8.0;
/// Processor time of the computation below on the machine that deadlines are written for: a small virtual one.
const USUAL: Duration = Duration::from_millis(4);

/// A stopwatch that runs slower on a busy machine.
pub struct Patience {
    deadline: Duration,
    began: Instant,
    looked: Instant,
    /// The elapsed time as it would have been on an idle machine.
    spent: Duration,
}

impl Patience {
    /// Starts the stopwatch.
    pub fn new(deadline: Duration) -> Self {
        let now = Instant::now();
        Self { deadline, began: now, looked: now, spent: Duration::ZERO }
    }

    /// Counts the time since the last call, and returns whether the deadline has passed.
    pub fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.spent += now.duration_since(self.looked).div_f64(stretch());
        self.looked = now;
        self.spent >= self.deadline
    }

    /// How long the next poll may take.
    pub fn look(&self) -> Duration {
        self.deadline.saturating_sub(self.spent).mul_f64(stretch()).max(LAST_LOOK)
    }

    /// How long to wait before the next poll.
    pub fn pause(&self) -> Duration {
        (self.began.elapsed() / 20).clamp(POLL, SELDOM)
    }
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waited, spent) = (self.began.elapsed().as_secs_f32(), self.spent.as_secs_f32());
        write!(f, "{waited:.1} s, which count for {spent:.1} s of {:.0} s ({})", self.deadline.as_secs_f32(), Crowd::now())
    }
}

/// Seconds on this machine, as busy as it is now, that count as one second of an idle machine of the usual speed.
pub fn stretch() -> f64 {
    (given() * *SLOWNESS * Crowd::now().share()).clamp(1.0, MOST)
}

/// The factor in `CAPW_PATIENCE`; 1 by default.
fn given() -> f64 {
    static GIVEN: LazyLock<f64> = LazyLock::new(|| {
        let given = std::env::var("CAPW_PATIENCE").map_or(1.0, |text| text.parse().expect("CAPW_PATIENCE is a number"));
        assert!(given > 0.0, "CAPW_PATIENCE is {given}: it has to be above 0");
        given
    });
    *GIVEN
}

/// How much slower this machine's cores are than the usual ones; 1 for faster ones. The best of some tries, by processor
/// time: [`Crowd`] counts the other programs.
static SLOWNESS: LazyLock<f64> = LazyLock::new(|| {
    let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let tries = (0..5).map(|_| {
        let began = spent();
        let sum = (0..400_000_u64).fold(1_u64, |sum, next| black_box(sum ^ next).wrapping_mul(0x0100_0000_01b3));
        black_box(sum);
        spent().saturating_sub(began)
    });
    tries.min().unwrap_or(USUAL).div_duration_f64(USUAL).max(1.0)
});

/// How many programs want the processors.
struct Crowd {
    load: f64,
    running: f64,
    processors: f64,
}

impl Crowd {
    fn now() -> Self {
        let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        // `0.20 0.18 0.12 1/80 11206`: the load of the last minute, and the running programs at this moment.
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let mut words = text.split_whitespace();
        let load = words.next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
        let running = words.nth(2).and_then(|word| word.split('/').next()?.parse().ok()).unwrap_or(0.0);
        Self { load, running, processors }
    }

    /// The programs per processor: 2 means that each program gets half of a processor.
    fn share(&self) -> f64 {
        (self.load.max(self.running) / self.processors).max(1.0)
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, running, processors } = self;
        write!(f, "load {load:.1}, {running:.0} running on {processors:.0} processors, cores {:.1} × slower, CAPW_PATIENCE={}", *SLOWNESS, given())
    }
}
