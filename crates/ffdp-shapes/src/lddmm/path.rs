//! Shooting: points with momenta on their way from t = 0 to 1, and what they carry along.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::hamiltonian::{Field, Hamiltonian};

/// How a path is integrated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// The midpoint rule: two products a step, error of second order.
    #[default]
    Rk2,
    /// Runge and Kutta's classical rule: four products a step, error of fourth order.
    Rk4,
}

impl Scheme {
    /// Where a stage begins: `x + a h k` with the slope `k` of the stage before; and its part in the step.
    fn stages(self) -> &'static [(f64, f64)] {
        match self {
            Self::Rk2 => &[(0.0, 0.0), (0.5, 1.0)],
            Self::Rk4 => &[(0.0, 1.0 / 6.0), (0.5, 1.0 / 3.0), (0.5, 1.0 / 3.0), (1.0, 1.0 / 6.0)],
        }
    }

    /// One step of any system: `slope` is asked once a stage, in order.
    fn step<const N: usize>(
        self,
        state: [Tensor<2>; N],
        h: f64,
        mut slope: impl FnMut(usize, &[Tensor<2>; N]) -> [Tensor<2>; N],
    ) -> [Tensor<2>; N] {
        let mut sum: [Option<Tensor<2>>; N] = std::array::from_fn(|_| None);
        let mut last: Option<[Tensor<2>; N]> = None;
        for (stage, &(begin, weight)) in self.stages().iter().enumerate() {
            let at = match &last {
                Some(k) => std::array::from_fn(|i| state[i].clone() + k[i].clone() * (begin * h)),
                None => state.clone(),
            };
            let k = slope(stage, &at);
            if weight > 0.0 {
                for (sum, k) in sum.iter_mut().zip(&k) {
                    let part = k.clone() * (weight * h);
                    *sum = Some(match sum.take() {
                        Some(sum) => sum + part,
                        None => part,
                    });
                }
            }
            last = Some(k);
        }
        let mut sum = sum.into_iter();
        state.map(|x| x + sum.next().flatten().expect("a scheme has a weighted stage"))
    }
}

/// A path of points with momenta, and the velocities that it had on the way.
#[derive(Clone, Debug)]
pub struct Path {
    scheme: Scheme,
    h: f64,
    /// Those of every stage of every step.
    fields: Vec<Vec<Field>>,
    /// Points and momenta at the beginning and after every step.
    pub states: Vec<[Tensor<2>; 2]>,
}

impl Path {
    /// The geodesic from points `q` `[N, 3]` with momenta `p` on, for a time of 1, or of -1 backwards.
    pub fn shoot(
        hamiltonian: &Hamiltonian,
        [q, p]: [Tensor<2>; 2],
        scheme: Scheme,
        steps: usize,
        time: f64,
    ) -> Self {
        let h = time / steps as f64;
        let (mut fields, mut states) = (Vec::with_capacity(steps), vec![[q, p]]);
        for _ in 0..steps {
            let mut of_step = Vec::new();
            let now = states.last().expect("begins with one").clone();
            let next = scheme.step(now, h, |_, [q, p]| {
                let (field, slopes) = hamiltonian.motion(q, p);
                of_step.push(field);
                slopes
            });
            fields.push(of_step);
            states.push(next);
        }
        Self { scheme, h, fields, states }
    }

    /// Points and momenta at the end.
    pub fn end(&self) -> &[Tensor<2>; 2] {
        self.states.last().expect("begins with one")
    }

    /// Where points `[M, 3]` are at the beginning and after every step: the same integration as that of the path
    /// itself.
    pub fn carry(&self, x: Tensor<2>) -> Vec<Tensor<2>> {
        let mut places = vec![x];
        for fields in &self.fields {
            let now = [places.last().expect("begins with one").clone()];
            let [next] = self.scheme.step(now, self.h, |stage, [x]| [fields[stage].at(x.clone())]);
            places.push(next);
        }
        places
    }

    /// Only where they are at the end.
    pub fn carry_to_end(&self, x: Tensor<2>) -> Tensor<2> {
        self.fields.iter().fold(x, |x, fields| {
            let [next] = self.scheme.step([x], self.h, |stage, [x]| [fields[stage].at(x.clone())]);
            next
        })
    }
}
