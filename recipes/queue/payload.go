package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Curator's format of an item is a version, the payloads, each after an opcode and its length, and an end
// marker.
const (
	payloadVersion = 0x00010001
	opcodeItem     = 0x01
	opcodeEnd      = 0x02
)

var errMalformed = errors.New("item is not in Curator's format")

// encode returns payloads in Curator's format.
func encode(parts ...[]byte) []byte {
	size := 5
	for _, p := range parts {
		size += 5 + len(p)
	}
	raw := binary.BigEndian.AppendUint32(make([]byte, 0, size), payloadVersion)
	for _, p := range parts {
		raw = append(raw, opcodeItem)
		raw = binary.BigEndian.AppendUint32(raw, uint32(len(p)))
		raw = append(raw, p...)
	}
	return append(raw, opcodeEnd)
}

// decode returns the payloads in raw, which is in Curator's format. The payloads share memory with raw.
func decode(raw []byte) (parts [][]byte, err error) {
	if len(raw) < 4 || binary.BigEndian.Uint32(raw) != payloadVersion {
		return nil, fmt.Errorf("%w: the version is missing or unknown", errMalformed)
	}
	rest := raw[4:]
	for {
		if len(rest) == 0 {
			return nil, fmt.Errorf("%w: the end marker is missing", errMalformed)
		}
		switch opcode := rest[0]; opcode {
		case opcodeEnd:
			return parts, nil
		case opcodeItem:
		default:
			return nil, fmt.Errorf("%w: unknown opcode %d", errMalformed, opcode)
		}
		if len(rest) < 5 {
			return nil, fmt.Errorf("%w: the length of a payload is truncated", errMalformed)
		}
		n := binary.BigEndian.Uint32(rest[1:])
		rest = rest[5:]
		if uint64(n) > uint64(len(rest)) {
			return nil, fmt.Errorf("%w: only %d bytes of a payload of %d", errMalformed, len(rest), n)
		}
		parts = append(parts, rest[:n:n])
		rest = rest[n:]
	}
}
