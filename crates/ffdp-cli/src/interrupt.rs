//! What is said when the user ends a run (Ctrl-C, or a job's time is over): how it can be gone on with.

use std::sync::{Mutex, PoisonError};

/// What is said of a whole command, whatever its runs have to say.
static OF_COMMAND: Mutex<Option<String>> = Mutex::new(None);

/// What will be said of the command until its end.
pub fn of_command(message: &str) {
    say(Some(message));
    *OF_COMMAND.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.to_string());
}

/// What will be said from now on, unless [`of_command`] has said it for all runs; `None` where nothing is lost.
pub fn at_interrupt(message: Option<&str>) {
    if OF_COMMAND.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
        say(message);
    }
}

fn say(message: Option<&str>) {
    // A handler may not allocate: the text lies ready.
    #[cfg(target_os = "linux")]
    signals::say(message.map(|message| format!("\n{message}\n")));
    #[cfg(not(target_os = "linux"))]
    let _ = message;
}

#[cfg(target_os = "linux")]
mod signals {
    use std::ptr::{null, null_mut};
    use std::sync::Once;
    use std::sync::atomic::{AtomicPtr, Ordering};

    /// The text, or null. Texts are never freed, since a handler may read one at any time: there are a few in a run.
    static TEXT: AtomicPtr<String> = AtomicPtr::new(null_mut());
    static HANDLERS: Once = Once::new();

    pub fn say(text: Option<String>) {
        let text = text.map_or(null_mut(), |text| Box::into_raw(Box::new(text)));
        TEXT.store(text, Ordering::Release);
        HANDLERS.call_once(|| [libc::SIGINT, libc::SIGTERM].into_iter().for_each(install));
    }

    fn install(signal: libc::c_int) {
        // SAFETY: all zeros is a valid `sigaction`; the handler calls only functions that are allowed in one.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, null(), &mut before);
            // Who ignores it (nohup), or has a handler (MPI), keeps that.
            if before.sa_sigaction != libc::SIG_DFL {
                return;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER;
            libc::sigaction(signal, &action, null_mut());
        }
    }

    /// Says it and ends as without a handler: `SA_RESETHAND` has removed this one.
    extern "C" fn handle(signal: libc::c_int) {
        // SAFETY: the text is never freed; `write` and `raise` are allowed in a handler.
        unsafe {
            if let Some(text) = TEXT.load(Ordering::Acquire).as_ref() {
                libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            }
            libc::raise(signal);
        }
    }
}
