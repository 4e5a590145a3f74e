//go:build !linux

package benchmark

import "errors"

// ReadProcessorUse is not implemented on this platform.
func ReadProcessorUse() (ProcessorUse, error) { return ProcessorUse{}, errors.ErrUnsupported }

// processorModel is not implemented on this platform.
func processorModel() string { return "" }
