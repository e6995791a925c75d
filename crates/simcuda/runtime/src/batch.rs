//! Copies with attributes, one by one and in batches.

use crate::abi::{BatchOperation, CopyAttributes, In};
use crate::device::ready;

export! {
    cudaMemcpyBatchAsync / cudaMemcpyBatchAsync_ptsz |per_thread|
        (targets: In<u64>, sources: In<u64>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>,
         firsts: In<usize>, attributes_count: usize, stream: u64) {
        ready()?.cuMemcpyBatchAsync(per_thread, targets, sources, sizes, count, attributes, firsts, attributes_count,
                                    stream)
    }
    cudaMemcpy3DBatchAsync / cudaMemcpy3DBatchAsync_ptsz |per_thread|
        (count: usize, operations: In<BatchOperation>, flags: u64, stream: u64) {
        ready()?.cuMemcpy3DBatchAsync(per_thread, count, operations, flags, stream)
    }
    cudaMemcpyWithAttributesAsync / cudaMemcpyWithAttributesAsync_ptsz |per_thread|
        (target: u64, source: u64, length: usize, attributes: In<CopyAttributes>, stream: u64) {
        ready()?.cuMemcpyWithAttributesAsync(per_thread, target, source, length, attributes, stream)
    }
    cudaMemcpy3DWithAttributesAsync / cudaMemcpy3DWithAttributesAsync_ptsz |per_thread|
        (operation: In<BatchOperation>, flags: u64, stream: u64) {
        ready()?.cuMemcpy3DWithAttributesAsync(per_thread, operation, flags, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::runtime::sys::{cudaMemcpy3DBatchOp, cudaMemcpyAttributes};
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_are_laid_out_as_nvidias() {
        assert_eq!(
            size_of::<CopyAttributes>(),
            size_of::<cudaMemcpyAttributes>()
        );
        assert_eq!(
            size_of::<BatchOperation>(),
            size_of::<cudaMemcpy3DBatchOp>()
        );
        assert_eq!(
            offset_of!(BatchOperation, order),
            offset_of!(cudaMemcpy3DBatchOp, srcAccessOrder)
        );
    }
}
