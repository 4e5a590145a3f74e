package link

import (
	"fmt"
	"strconv"
)

// Claim distinguishes clusters, data directories and processes that have the same names. A peer sends
// its claim in every handshake, and the other peers compare it with the claims that they have stored
// (package identity).
type Claim struct {
	// Founding is the identity of the cluster, which is a hash of its initial configuration. It is
	// empty if the peer has not joined a cluster yet.
	Founding string
	// Founders describes the initial configuration, for error messages.
	Founders string
	// Instance is a random string that was created together with the data directory.
	Instance string
	// Start is the number of processes that have used the data directory, including this process.
	Start uint64
	// Process is a random string that each process creates when it starts.
	Process string
}

// maxClaimField is the maximum length in bytes of each string of a Claim, except for Founders.
const maxClaimField = 64

// claimFields is the number of the strings by which a handshake encodes a Claim.
const claimFields = 5

// encodedFields returns the strings by which a handshake encodes the claim.
func (c Claim) encodedFields() []string {
	start := ""
	if c.Start != 0 {
		start = strconv.FormatUint(c.Start, 10)
	}
	return []string{c.Founding, c.Instance, start, c.Process, c.Founders}
}

// decodeClaim returns the claim that encodedFields has encoded.
func decodeClaim(fields [claimFields]string) (Claim, error) {
	c := Claim{Founding: fields[0], Instance: fields[1], Process: fields[3], Founders: fields[4]}
	if fields[2] == "" {
		return c, nil
	}
	n, err := strconv.ParseUint(fields[2], 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != fields[2] {
		return Claim{}, fmt.Errorf("%w: the number of starts is %q", errNotHandshake, fields[2])
	}
	c.Start = n
	return c, nil
}
