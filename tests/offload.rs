//! A registration of slabs keeps to the memory that it was given on a GPU, by what the pools of the device
//! reserve. The only test of its process: pools are those of the device.

#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod kept {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use burn::tensor::Device;
    use ffdp::register::{
        LevelSettings, Placement, Register, Settings, Stage, methods::GreedySettings,
    };
    use ffdp::synth::{PhantomSettings, pair};
    use ffdp_kit::testing::gpu_devices;

    const MB: u64 = 1_000_000;
    const SIZE: usize = 128;
    /// Images, field and moments at full size take 92 MB. A third of the limit is for what is not counted: mostly what
    /// was freed and goes back with the next allocation.
    const LIMIT: u64 = 72 * MB;

    /// The most that a device's pools have reserved while `run` ran, looked at all the time.
    fn most_reserved<T>(device: &Device, run: impl FnOnce() -> T) -> (u64, T) {
        let reserved = || device.memory_pool_usage().expect("a GPU has pools").bytes_reserved;
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !ended.load(Ordering::Relaxed) {
                    most = most.max(reserved());
                    std::thread::sleep(Duration::from_millis(1));
                }
                most
            });
            let result = run();
            ended.store(true, Ordering::Relaxed);
            (watch.join().expect("it only looks"), result)
        })
    }

    #[test]
    fn a_device_holds_no_more_than_it_may() {
        let Some((_, device)) = gpu_devices().into_iter().next() else { return };
        let settings = PhantomSettings::with_size([SIZE; 3]);
        let pair = pair(&settings, 3).expect("valid settings");
        let (mut fixed, mut moving) = (pair.fixed.image, pair.moving.image);
        let level = |shrink, iterations| LevelSettings { shrink, iterations };
        let levels = vec![level(4.0, 4), level(2.0, 2), level(1.0, 2)];
        let greedy = GreedySettings { levels, ..GreedySettings::default() };
        let settings = Settings { stages: vec![Stage::Greedy(greedy)], ..Settings::default() };
        let placement = Placement::Device { device: device.clone(), bytes: LIMIT };
        let (most, found) = most_reserved(&device, || {
            let registration = Register::new(&mut fixed, &mut moving).settings(&settings);
            registration.on(&placement).run().expect("good input")
        });
        let field = found.warp.expect("the stage was deformable").field;
        let shards = field.layout().count();
        println!("{shards} shards, {} of {} MB", most / MB, LIMIT / MB);
        assert!(shards > 1, "it does not fit whole");
        assert!(found.loss_after < found.loss_before, "something was found");
        assert!(most <= LIMIT, "{most} B of {LIMIT}");
    }
}
