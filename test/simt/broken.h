// Kernels with one deliberate mistake each, which the emulated device must catch; with `fixed` they
// are correct. Pointers are to memory of the emulated device.
#pragma once

namespace kuiper::simt_test {

// ---- outside a buffer ---------------------------------------------------------------------------
void ReadPastBuffer(float* out, const float* in, int n, bool fixed);       // reads in[n]
void WritePastBuffer(float* out, int n, bool fixed);                       // writes out[n]
void ReadPastSharedVariable(float* out, bool fixed);                       // out [32]
void ReadPastDynamicShared(float* out, bool fixed);                        // out [32]
void CopyAsyncPastBuffer(float* out, const float* in, int n, bool fixed);  // reads in[n .. n+3]

// ---- order between threads ----------------------------------------------------------------------
void ReverseWithoutBarrier(float* out, const float* in, bool fixed);        // 256 values
void LeftNeighbourWithoutBarrier(float* out, const float* in, bool fixed);  // 256 values
void ReuseWithoutBarrier(float* out, bool fixed);                           // out [128]
void ExchangeWithoutSyncWarp(float* out, bool fixed);                       // out [32]
void AddWithoutAtomic(float* out, bool fixed);                              // out [1]
void BlocksWriteTheSame(float* out, bool fixed);                            // out [4 * 32]
void LoadMatrixWithoutSyncWarp(float* out, bool fixed);                     // out [32]

// ---- asynchronous copies ------------------------------------------------------------------------
void ReadWithoutCopyWait(float* out, const float* in, bool fixed);           // 128 values
void ReadOthersCopyWithoutBarrier(float* out, const float* in, bool fixed);  // 128 values
void CopyIntoUsedTile(float* out, const float* in, bool fixed);              // 128 values

// ---- rules of the model -------------------------------------------------------------------------
void ReadUninitialisedShared(float* out, bool fixed);                // out [32]
void DivergentBarrier(float* out, bool fixed);                       // out [32]
void BarriersOnTwoLines(float* out, bool fixed);                     // out [32]
void DivergentShuffle(float* out, bool fixed);                       // out [32]
void ShuffleWithForeignMask(float* out, bool fixed);                 // out [32]
void LoadMatrixMisaligned(float* out, bool fixed);                   // out [32]
void LoadMatrixFromGlobal(float* out, const float* in, bool fixed);  // out [32]

}  // namespace kuiper::simt_test
