//go:build !linux

package benchmark

import "errors"

// ReadProcessorUse returns an error, because it is not implemented on this platform.
func ReadProcessorUse() (ProcessorUse, error) { return ProcessorUse{}, errors.ErrUnsupported }

// processorModel returns "", because it is not implemented on this platform.
func processorModel() string { return "" }
