//! Where from its pointer on a kernel uses memory: how an address depends on the thread.
//!
//! `p[blockIdx.x * blockDim.x + threadIdx.x]` is an element for each thread of the launch,
//! `p[blockIdx.x]` one for each block, and `*p` the same one for all. For each register
//! this finds the sum of multiples of `%tid.x`, `%ctaid.x` and `%ctaid.x * %ntid.x` that
//! it holds. Of a loop, that is the first round's.
//!
//! What is told here is at least used, as far as the kernel's conditions let it: an address
//! that does not follow this pattern is [`Per::Unknown`].

use std::collections::HashMap;

use crate::Param;
use crate::instruction::{Instruction, displacement, names, number, size_of};

/// How often the bytes of a [`Spread`] follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Per {
    /// Once: all threads use the same.
    Launch,
    /// Once for each block.
    Block,
    /// Once for each thread of a block; all blocks use the same.
    Lane,
    /// That is not known.
    #[default]
    Unknown,
    /// Once for each thread of the launch.
    Thread,
}

/// What of the memory from a pointer on is used. In bytes; what is larger than 255 counts
/// as that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How often it follows itself.
    pub per: Per,
    /// How far from the pointer the first begins; 0 where that is not known.
    pub first: u8,
    /// How long one is.
    pub bytes: u8,
}

impl Spread {
    /// Of two accesses through one pointer: what both together use at least.
    pub(crate) fn join(self, other: Self) -> Self {
        let (low, high) = if self.per <= other.per {
            (self, other)
        } else {
            (other, self)
        };
        match (low.per, high.per) {
            (Per::Launch, Per::Launch) => {
                let first = low.first.min(high.first);
                let end = |one: Self| one.first.saturating_add(one.bytes);
                Self {
                    first,
                    bytes: end(low).max(end(high)) - first,
                    ..low
                }
            }
            // How far apart the elements are is not known.
            (Per::Unknown, Per::Unknown) => Self {
                bytes: low.bytes.min(high.bytes),
                ..low
            },
            (Per::Block, Per::Lane) => Self {
                per: Per::Unknown,
                first: 0,
                ..high
            },
            (one, other) if one == other => Self {
                first: low.first.min(high.first),
                ..low
            },
            _ => high,
        }
    }
}

/// A sum, by what its terms are multiples of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    constant: i64,
    /// Of `%tid.x`.
    lane: i64,
    /// Of `%ctaid.x`.
    block: i64,
    /// Of `%ctaid.x * %ntid.x`.
    base: i64,
    /// A pointer among the parameters is part of it.
    pointer: bool,
    /// In later rounds of a loop it is more.
    grows: bool,
}

impl Sum {
    fn is_constant(&self) -> bool {
        !self.pointer && !self.varies()
    }

    fn varies(&self) -> bool {
        self.lane != 0 || self.block != 0 || self.base != 0
    }

    fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            constant: self.constant.checked_add(other.constant)?,
            lane: self.lane.checked_add(other.lane)?,
            block: self.block.checked_add(other.block)?,
            base: self.base.checked_add(other.base)?,
            pointer: self.pointer || other.pointer,
            grows: self.grows || other.grows,
        })
    }

    fn times(self, factor: i64) -> Option<Self> {
        if self.pointer && factor != 1 {
            return None;
        }
        Some(Self {
            constant: self.constant.checked_mul(factor)?,
            lane: self.lane.checked_mul(factor)?,
            block: self.block.checked_mul(factor)?,
            base: self.base.checked_mul(factor)?,
            ..self
        })
    }
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Sum(Sum),
    /// `%ntid.x`.
    BlockSize,
    /// Anything else.
    Other,
}

impl Index {
    /// Where a register is set more than once. A number may be what a pointer or an index is
    /// until it is set to something.
    fn join(self, other: Self) -> Self {
        let (Self::Sum(one), Self::Sum(other)) = (self, other) else {
            return if self == other { self } else { Self::Other };
        };
        let grows = one.grows || other.grows;
        let of = |sum| Self::Sum(Sum { grows, ..sum });
        match (one.is_constant(), other.is_constant()) {
            _ if (Sum { grows, ..one }) == (Sum { grows, ..other }) => of(one),
            (true, false) => of(other),
            (false, true) => of(one),
            _ => Self::Other,
        }
    }

    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Sum(one), Self::Sum(other)) => one.plus(other).map_or(Self::Other, Self::Sum),
            _ => Self::Other,
        }
    }

    fn times(self, other: Self) -> Self {
        let product = match (self, other) {
            (Self::Sum(sum), Self::Sum(factor)) | (Self::Sum(factor), Self::Sum(sum))
                if factor.is_constant() && !factor.grows =>
            {
                sum.times(factor.constant)
            }
            (Self::Sum(sum), Self::BlockSize) | (Self::BlockSize, Self::Sum(sum)) => {
                let blocks = Sum {
                    block: sum.block,
                    grows: sum.grows,
                    ..Sum::default()
                };
                (blocks == sum).then_some(Sum {
                    block: 0,
                    base: sum.block,
                    ..sum
                })
            }
            _ => None,
        };
        product.map_or(Self::Other, Self::Sum)
    }

    fn grown(self) -> Self {
        match self {
            Self::Sum(sum) => Self::Sum(Sum { grows: true, ..sum }),
            other => other,
        }
    }
}

/// What a kernel's registers hold.
pub(crate) struct Indices<'a> {
    registers: HashMap<&'a str, Index>,
}

impl<'a> Indices<'a> {
    /// `cycles` are the registers that depend on themselves, by the loop that they are of.
    pub(crate) fn of(
        instructions: &[Instruction<'a>],
        params: &HashMap<&str, Param>,
        cycles: &HashMap<&str, usize>,
    ) -> Self {
        let mut indices = Self {
            registers: HashMap::new(),
        };
        // A register is changed three times at most, but what changes it may come after it.
        const PASSES: usize = 16;
        let settled = (0..PASSES).any(|_| {
            let mut changed = false;
            for instruction in instructions {
                changed |= indices.flow(instruction, params, cycles);
            }
            !changed
        });
        if !settled {
            indices.registers.clear();
        }
        indices
    }

    /// What an access uses by the address in `[register+16]`, by an instruction of this name.
    pub(crate) fn spread(&self, place: &str, full: &str) -> Spread {
        let vector = ["v2", "v4", "v8"]
            .iter()
            .find(|vector| full.split('.').any(|modifier| modifier == **vector))
            .map_or(1, |vector| usize::from(vector.as_bytes()[1] - b'0'));
        let bytes = size_of(full).unwrap_or(0) * vector;
        let bytes = u8::try_from(bytes).unwrap_or(u8::MAX);
        let size = i64::from(bytes);
        let known = || {
            let (name, offset) = displacement(place);
            let Some(Index::Sum(sum)) = self.registers.get(name).copied() else {
                return None;
            };
            let first = u8::try_from(sum.constant.checked_add(offset?)?).ok()?;
            let per = match (sum.lane, sum.block, sum.base) {
                _ if !sum.pointer || bytes == 0 => return None,
                // Later rounds of a loop use what lies behind.
                (lane, 0, base) if lane == size && base == size => Per::Thread,
                _ if sum.grows => return None,
                (0, 0, 0) => Per::Launch,
                (0, block, 0) if block == size => Per::Block,
                (lane, 0, 0) if lane == size => Per::Lane,
                _ => return None,
            };
            Some(Spread { per, first, bytes })
        };
        known().unwrap_or(Spread {
            bytes,
            ..Spread::default()
        })
    }

    /// `None` where nothing is known of it yet.
    fn index(&self, operand: &str) -> Option<Index> {
        if let Some(number) = number(operand) {
            return Some(Index::Sum(Sum {
                constant: number,
                ..Sum::default()
            }));
        }
        let one = Sum::default();
        match operand {
            "%tid.x" => Some(Index::Sum(Sum { lane: 1, ..one })),
            "%ctaid.x" => Some(Index::Sum(Sum { block: 1, ..one })),
            "%ntid.x" => Some(Index::BlockSize),
            _ if operand.starts_with('%') && !operand.contains('.') => {
                self.registers.get(operand).copied()
            }
            _ => Some(Index::Other),
        }
    }

    /// Passes what is known on through one instruction; true if that told anything new.
    fn flow(
        &mut self,
        instruction: &Instruction<'a>,
        params: &HashMap<&str, Param>,
        cycles: &HashMap<&str, usize>,
    ) -> bool {
        let Some((&target, sources)) = instruction.operands.split_first() else {
            return false;
        };
        if matches!(instruction.name, "st" | "red" | "bra" | "bar" | "call") {
            return false;
        }
        let carried = |operand: &str| {
            let cycle = cycles.get(target);
            cycle.is_some() && cycle == cycles.get(operand)
        };
        // What a loop adds in every round is added 0 times at first.
        let sum = |terms: &[(&str, Option<Index>)]| {
            let loops = terms.iter().any(|term| carried(term.0));
            let mut terms = terms.iter().filter(|term| !loops || carried(term.0));
            let sum = terms.try_fold(Index::Sum(Sum::default()), |sum, term| {
                Some(sum.plus(term.1?))
            })?;
            Some(if loops { sum.grown() } else { sum })
        };
        let low = !instruction.full.contains(".hi");
        let found = match (instruction.name, sources) {
            ("ld", [source]) if instruction.full.starts_with("ld.param") => {
                return self.load_param(instruction, target, source, params);
            }
            ("mov" | "cvt" | "cvta", [source]) => self.index(source),
            ("add", [a, b]) => sum(&[(a, self.index(a)), (b, self.index(b))]),
            ("sub", [a, b]) => {
                let minus = self.index(b).map(|b| {
                    b.times(Index::Sum(Sum {
                        constant: -1,
                        ..Sum::default()
                    }))
                });
                sum(&[(a, self.index(a)), (b, minus)])
            }
            ("mul", [a, b]) if low => pair(self.index(a), self.index(b), Index::times),
            ("shl", [a, b]) => {
                let by = number(b).and_then(|by| 1i64.checked_shl(u32::try_from(by).ok()?));
                match by {
                    Some(factor) => self.index(a).map(|a| {
                        a.times(Index::Sum(Sum {
                            constant: factor,
                            ..Sum::default()
                        }))
                    }),
                    None => Some(Index::Other),
                }
            }
            ("mad", [a, b, c]) if low => {
                // A factor that a loop carries begins with its first value.
                let product = pair(self.index(a), self.index(b), Index::times);
                sum(&[("", product), (c, self.index(c))])
            }
            _ => Some(Index::Other),
        };
        let Some(found) = found else { return false };
        self.assign(target, found)
    }

    /// A pointer is what its value stands for; other parameters are not followed.
    fn load_param(
        &mut self,
        instruction: &Instruction<'a>,
        target: &'a str,
        source: &str,
        params: &HashMap<&str, Param>,
    ) -> bool {
        let (name, offset) = displacement(source);
        let is_param = offset.is_some() && params.contains_key(name);
        let found = if is_param && size_of(instruction.full) == Some(8) {
            Index::Sum(Sum {
                pointer: true,
                ..Sum::default()
            })
        } else {
            Index::Other
        };
        self.assign(target, found)
    }

    fn assign(&mut self, target: &'a str, found: Index) -> bool {
        let mut changed = false;
        for register in names(target) {
            let known = self.registers.get(register).copied();
            let joined = known.map_or(found, |known| known.join(found));
            if known != Some(joined) {
                self.registers.insert(register, joined);
                changed = true;
            }
        }
        changed
    }
}

fn pair(
    one: Option<Index>,
    other: Option<Index>,
    join: impl Fn(Index, Index) -> Index,
) -> Option<Index> {
    Some(join(one?, other?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::code;
    use crate::ptx::{self, Entry};

    /// `%rd2` is the pointer, `%r5` the thread's number, and `%r1` its block's.
    const HEAD: &str = "ld.param.u64 %rd1, [k_param_0];\nld.param.u32 %r9, [k_param_1];\n\
        cvta.to.global.u64 %rd2, %rd1;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\n\
        mov.u32 %r3, %tid.x;\nmad.lo.s32 %r5, %r1, %r2, %r3;\nmov.u32 %r6, %nctaid.x;\n\
        mul.lo.s32 %r7, %r2, %r6;\n";

    /// What is written.
    fn written(body: &str) -> Spread {
        let text = format!(
            ".version 8.0\n.visible .entry k(.param .u64 k_param_0, .param .u32 k_param_1)\n\
             {{\n{HEAD}{body}\nret;\n}}\n"
        );
        let entry = ptx::entry(&text, "k").expect("it is there");
        let found = code(&Entry::parse(&entry).expect("it is one")).expect("it is known");
        found.accesses[&(0, false)].written.expect("it is written")
    }

    fn spread(per: Per, first: u8, bytes: u8) -> Spread {
        Spread { per, first, bytes }
    }

    #[test]
    fn an_element_for_each_thread() {
        let expected = spread(Per::Thread, 0, 4);
        let body = "mul.wide.s32 %rd3, %r5, 4;\nadd.s64 %rd4, %rd2, %rd3;\n";
        assert_eq!(
            written(&format!("{body}st.global.f32 [%rd4], %f1;")),
            expected
        );
        assert_eq!(
            written(&format!("{body}st.global.f32 [%rd4+8], %f1;")),
            spread(Per::Thread, 8, 4)
        );
        // What is not known adds nothing, and takes nothing away.
        let two = format!(
            "{body}st.global.f32 [%rd4], %f1;\nld.global.u32 %r8, [%rd4];\n\
            mul.wide.s32 %rd5, %r8, 4;\nadd.s64 %rd6, %rd2, %rd5;\nst.global.f32 [%rd6], %f1;"
        );
        assert_eq!(written(&two), expected);
        // A shift, an unsigned index of 64 bits, and four elements at once.
        let body = "cvt.u64.u32 %rd3, %r5;\nshl.b64 %rd4, %rd3, 4;\nadd.s64 %rd5, %rd2, %rd4;\n\
            st.global.v4.f32 [%rd5], {%f1, %f2, %f3, %f4};";
        assert_eq!(written(body), spread(Per::Thread, 0, 16));
        // for (i = thread; i < n; i += threads)
        let body = "mov.u32 %r10, %r5;\n$L:\nmul.wide.s32 %rd3, %r10, 4;\nadd.s64 %rd4, %rd2, %rd3;\n\
            st.global.f32 [%rd4], %f1;\nadd.s32 %r11, %r10, %r7;\nmov.u32 %r10, %r11;\n@%p1 bra $L;";
        assert_eq!(written(body), expected);
    }

    #[test]
    fn an_element_for_each_block_or_for_all() {
        let body = "mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd2, %rd3;\n@%p1 st.global.f32 [%rd4], %f1;";
        assert_eq!(written(body), spread(Per::Block, 0, 4));
        let body =
            "mul.wide.u32 %rd3, %r3, 4;\nadd.s64 %rd4, %rd2, %rd3;\nst.global.f32 [%rd4], %f1;";
        assert_eq!(written(body), spread(Per::Lane, 0, 4));
        assert_eq!(
            written("st.global.u64 [%rd2+16], 1;"),
            spread(Per::Launch, 16, 8)
        );
        assert_eq!(
            written("st.global.u64 [%rd2+16], 1;\nst.global.u32 [%rd2+4], 1;"),
            spread(Per::Launch, 4, 20)
        );
        assert_eq!(
            written("st.global.u32 [%rd2+4096], 1;"),
            spread(Per::Unknown, 0, 4)
        );
    }

    #[test]
    fn what_does_not_follow_the_pattern_is_not_known() {
        let unknown = spread(Per::Unknown, 0, 4);
        for body in [
            // Every second one.
            "mul.wide.s32 %rd3, %r5, 8;",
            // From memory.
            "ld.global.s32 %r8, [%rd2];\nmul.wide.s32 %rd3, %r8, 4;",
            // A number among the parameters times the thread's.
            "mul.lo.s32 %r8, %r5, %r9;\nmul.wide.s32 %rd3, %r8, 4;",
            // Blocks of a size that the code has fixed.
            "shl.b32 %r8, %r1, 8;\nadd.s32 %r10, %r8, %r3;\nmul.wide.s32 %rd3, %r10, 4;",
            // From the grid's size on.
            "add.s32 %r8, %r5, %r7;\nmul.wide.s32 %rd3, %r8, 4;",
            // One thread's loop.
            "mov.u32 %r8, 0;\n$L:\nmul.wide.s32 %rd3, %r8, 4;\nadd.s32 %r8, %r8, 1;\n@%p1 bra $L;",
            // Either of two.
            "selp.b32 %r8, %r5, %r3, %p1;\nmul.wide.s32 %rd3, %r8, 4;",
            "mov.u32 %r8, %r5;\nmov.u32 %r8, %r3;\nmul.wide.s32 %rd3, %r8, 4;",
            "mul.wide.s32 %rd3, %r999, 4;",
        ] {
            let body = format!("{body}\nadd.s64 %rd4, %rd2, %rd3;\nst.global.f32 [%rd4], %f1;");
            assert_eq!(written(&body), unknown, "{body}");
        }
    }
}
