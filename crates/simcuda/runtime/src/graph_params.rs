//! How the runtime describes the nodes of graphs where that differs from the driver: kernels are named by their host
//! functions, and copies have parameters of their own.

use crate::abi::{Copy3d, In, Out, Status};
use crate::copy_box::{Params, plain, told};
use crate::driver::Driver;
use crate::error::INVALID_VALUE;
use crate::registry::{function_of, kernel};
use std::ffi::c_void;

type Pointers = *mut *mut c_void;

/// `cudaKernelNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelParams {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: Pointers,
    extra: Pointers,
}

/// `CUDA_KERNEL_NODE_PARAMS`: a function, or else a kernel and a context.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelNode {
    first: KernelParams,
    kernel: u64,
    context: u64,
}

/// `cudaKernelNodeParamsV2`, which also says what names the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct NamedKernel {
    first: KernelParams,
    context: u64,
    named_by: u32,
}

/// `cudaKernelFunctionType`.
const BY_HOST_FUNCTION: u32 = 1;
const BY_KERNEL: u32 = 2;
const BY_FUNCTION: u32 = 3;

impl KernelParams {
    /// As the driver takes it.
    pub(crate) fn for_driver(self, driver: &Driver) -> Status<KernelNode> {
        let kernel = kernel(driver, self.function as usize)?;
        let first = Self {
            function: 0,
            ..self
        };
        let context = 0;
        Ok(KernelNode {
            first,
            kernel,
            context,
        })
    }
}

impl KernelNode {
    pub(crate) const NONE: Self = Self {
        first: KernelParams {
            function: 0,
            grid: [0; 3],
            block: [0; 3],
            shared: 0,
            params: std::ptr::null_mut(),
            extra: std::ptr::null_mut(),
        },
        kernel: 0,
        context: 0,
    };

    /// As the program described it.
    pub(crate) fn for_program(self) -> KernelParams {
        let kernel = if self.first.function == 0 {
            self.kernel
        } else {
            self.first.function
        };
        KernelParams {
            function: function_of(kernel),
            ..self.first
        }
    }
}

/// `cudaMemcpyNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyParams {
    flags: i32,
    reserved: i32,
    context: u64,
    copy: Params,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyNode {
    flags: i32,
    reserved: i32,
    context: u64,
    copy: Copy3d,
}

/// `cudaGraphNodeType`, those that are described differently, and those of which the driver tells something.
const KERNEL: u32 = 0;
const MEMCPY: u32 = 1;
const ALLOCATE: u32 = 10;
const CONDITIONAL: u32 = 13;

/// `cudaGraphNodeParams` and `CUgraphNodeParams`: a type, and the struct of that type.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NodeParams {
    kind: u32,
    reserved: [i32; 3],
    body: [u64; 29],
    reserved_too: u64,
}

impl NodeParams {
    pub(crate) const NONE: Self = Self {
        kind: 0,
        reserved: [0; 3],
        body: [0; 29],
        reserved_too: 0,
    };

    fn read<T: Copy>(&self) -> Status<T> {
        const { assert!(size_of::<T>() <= 29 * 8) };
        In((&raw const self.body).cast::<T>()).get()
    }

    fn write<T>(&mut self, value: T) -> Status {
        const { assert!(size_of::<T>() <= 29 * 8) };
        self.body = [0; 29];
        Out((&raw mut self.body).cast::<T>()).put(value)
    }

    /// As the driver takes it.
    pub(crate) fn for_driver(mut self, driver: &Driver) -> Status<Self> {
        match self.kind {
            KERNEL => {
                let NamedKernel {
                    first, named_by, ..
                } = self.read()?;
                self.write(match named_by {
                    0 | BY_HOST_FUNCTION => first.for_driver(driver)?,
                    BY_KERNEL => KernelNode {
                        first: KernelParams {
                            function: 0,
                            ..first
                        },
                        kernel: first.function,
                        context: 0,
                    },
                    BY_FUNCTION => KernelNode {
                        first,
                        kernel: 0,
                        context: 0,
                    },
                    _ => return Err(INVALID_VALUE),
                })?;
            }
            MEMCPY => {
                let CopyParams {
                    flags,
                    reserved,
                    copy,
                    ..
                } = self.read()?;
                let copy = plain(driver, In(&copy))?;
                let context = 0;
                self.write(CopyNode {
                    flags,
                    reserved,
                    context,
                    copy,
                })?;
            }
            _ => {}
        }
        Ok(self)
    }

    /// As the program describes it.
    pub(crate) fn for_program(mut self, driver: &Driver) -> Status<Self> {
        match self.kind {
            KERNEL => {
                let node: KernelNode = self.read()?;
                self.write(NamedKernel {
                    first: node.for_program(),
                    context: node.context,
                    named_by: BY_HOST_FUNCTION,
                })?;
            }
            MEMCPY => {
                let CopyNode {
                    flags,
                    reserved,
                    context,
                    copy,
                } = self.read()?;
                let copy = told(driver, &copy)?;
                self.write(CopyParams {
                    flags,
                    reserved,
                    context,
                    copy,
                })?;
            }
            _ => {}
        }
        Ok(self)
    }

    /// The driver has told something in it.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.kind, ALLOCATE | CONDITIONAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys as driver;
    use cudarc::runtime::sys as runtime;
    use std::mem::{offset_of, size_of};

    #[test]
    fn params_are_laid_out_as_nvidias() {
        assert_eq!(
            size_of::<KernelParams>(),
            size_of::<runtime::cudaKernelNodeParams>()
        );
        assert_eq!(
            offset_of!(KernelParams, params),
            offset_of!(runtime::cudaKernelNodeParams, kernelParams)
        );
        assert_eq!(
            size_of::<KernelNode>(),
            size_of::<driver::CUDA_KERNEL_NODE_PARAMS_v2_st>()
        );
        assert_eq!(
            offset_of!(NamedKernel, named_by),
            offset_of!(runtime::cudaKernelNodeParamsV2, functionType)
        );
        assert_eq!(
            size_of::<CopyParams>(),
            size_of::<runtime::cudaMemcpyNodeParams>()
        );
        assert_eq!(
            size_of::<CopyNode>(),
            size_of::<driver::CUDA_MEMCPY_NODE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<NodeParams>(),
            size_of::<runtime::cudaGraphNodeParams>()
        );
        assert_eq!(
            size_of::<NodeParams>(),
            size_of::<driver::CUgraphNodeParams_st>()
        );
    }

    /// The runtime passes these on as they are.
    #[test]
    fn the_drivers_structs_are_as_large() {
        assert_eq!(
            size_of::<runtime::cudaMemsetParams>(),
            size_of::<driver::CUDA_MEMSET_NODE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<runtime::cudaMemAllocNodeParams>(),
            size_of::<driver::CUDA_MEM_ALLOC_NODE_PARAMS_v1_st>()
        );
        assert_eq!(
            size_of::<runtime::cudaGraphInstantiateParams>(),
            size_of::<driver::CUDA_GRAPH_INSTANTIATE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<runtime::cudaGraphExecUpdateResultInfo>(),
            size_of::<driver::CUgraphExecUpdateResultInfo_st>()
        );
    }
}
