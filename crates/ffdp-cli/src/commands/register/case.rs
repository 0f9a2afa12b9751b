//! What is known before anything is read: the settings, and of a pair what names and headers show and what it will take.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ffdp_register::{Content, Settings};
use ffdp_train::user_flags::WithoutEffect;

use super::args::RegisterArguments;
use super::channels;
use super::files::Files;
use super::inputs::Inputs;
use super::rehearsal::Following;
use crate::failure::Result;
use crate::hosts::Hosts;
use crate::label_names::LabelNames;
use crate::manifest::Claim;
use crate::memory::{Held, Plan, Sizes};
use crate::mesh::MeshArguments;
use crate::printer::Printer;
use crate::settings::to_toml;

/// What all pairs have in common.
pub struct Registrations {
    pub settings: Settings,
    /// As settings.toml has them.
    pub toml: String,
    pub interval: Duration,
    /// Of one pair, not of a list.
    pub alone: bool,
    /// Where pairs are registered, each on one of them.
    pub meshes: Vec<MeshArguments>,
    /// Who registers.
    pub hosts: Hosts,
    /// Set when the only pair cannot be read: nothing is left that kernels would be compiled for.
    pub unreadable: AtomicBool,
    /// Processes that compile kernels for later pairs.
    pub following: Mutex<Following>,
    /// Since the command began. Until the first pair is read its time counts.
    start: Instant,
    begun: AtomicBool,
}

impl Registrations {
    /// # Errors
    /// When the settings cannot be used, or leave a flag without an effect.
    pub fn new(
        request: &RegisterArguments,
        meshes: Vec<MeshArguments>,
        hosts: &Hosts,
    ) -> Result<Self> {
        let start = Instant::now();
        let settings = request.resolve()?;
        if hosts.ranks().is_none() {
            request.check_cuts(&settings)?;
        }
        // Of a list of pairs it is one table for all.
        LabelNames::of(request.label_names.as_deref())?;
        let (toml, interval) = (to_toml(&settings)?, request.checkpoint_interval()?);
        let (alone, begun) = (request.pairs.is_none(), AtomicBool::new(false));
        let (hosts, unreadable) = (hosts.clone(), AtomicBool::new(false));
        let following = Mutex::default();
        Ok(Self {
            settings,
            toml,
            interval,
            alone,
            meshes,
            hosts,
            unreadable,
            following,
            start,
            begun,
        })
    }

    /// When a pair began.
    pub fn clock(&self) -> Instant {
        match self.begun.swap(true, Ordering::Relaxed) {
            true => Instant::now(),
            false => self.start,
        }
    }
}

/// A pair that may be registered, as far as names and headers show.
pub struct Case {
    pub request: RegisterArguments,
    pub files: Files,
    pub printer: Printer,
    /// Of the first process.
    pub claim: Option<Claim>,
    pub sizes: Sizes,
    /// Of images that are held whole; slab by slab it depends on the placement.
    pub plan: Option<Plan>,
}

impl Case {
    /// # Errors
    /// When a flag has no effect, a result would overwrite an input, the folder holds results of another run, or an image is no image.
    pub fn new(request: RegisterArguments, all: &Registrations, printer: Printer) -> Result<Self> {
        let Registrations { settings, toml, hosts, .. } = all;
        request.check_driven(settings)?;
        let files = Files::in_folder(&request.output, request.format);
        Inputs::check(&request, &files)?;
        request.given.refuse(&[WithoutEffect {
            flags: &["resume", "checkpoint_every"],
            when: hosts.ranks().is_some(),
            because: "several processes keep no checkpoint",
            fix: "start one process",
        }])?;
        let claim = || files.claim(&request, toml, &request.inputs());
        let claim = hosts.is_first().then(claim).transpose()?;
        let sizes = request.sizes(settings)?;
        let plan = || request.planned(settings, &sizes, Held::Whole);
        let plan = (!request.slabs).then(plan).transpose()?;
        Ok(Self { request, files, printer, claim, sizes, plan })
    }

    /// Whether its results are there.
    pub fn is_done(&self) -> Result<bool> {
        self.claim.as_ref().map_or(Ok(false), |claim| claim.is_done(self.printer))
    }
}

impl RegisterArguments {
    /// From the headers.
    ///
    /// # Errors
    /// For headers that cannot be read, and a term of the settings that names a channel which is not there.
    pub fn sizes(&self, settings: &Settings) -> Result<Sizes> {
        let labels = self.fixed_labels.is_some() && self.moving_labels.is_some();
        let driving = settings.label_term.as_ref().filter(|_| labels);
        let of_images = 1 + channels::count(&self.channels)?;
        settings.check_channels(of_images)?;
        let labels = driving.map_or(0, |term| term.labels.len());
        let content = Content { channels: of_images + labels, labels, masked: self.masked() };
        let sizes = Sizes::of_files(self.fixed(), self.moving(), self.moving_labels.is_some())?;
        Ok(Sizes { content, ..sizes })
    }

    /// What a run of one process takes.
    pub fn planned(&self, settings: &Settings, sizes: &Sizes, held: Held) -> Result<Plan> {
        let disk = self.forecast(&sizes.fixed, settings);
        Plan::new(settings, sizes, held, self.mesh.first(), disk)
    }
}
