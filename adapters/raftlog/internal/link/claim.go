package link

import (
	"fmt"
	"strconv"
)

// Claim tells apart the clusters, the data directories and the processes that use the same
// names. A peer sends it with every handshake, and the other peers compare it with what they
// know (package identity).
type Claim struct {
	// Founding is the identity of the cluster, a hash of the configuration with which it was
	// founded. It is empty while a peer has not joined a cluster yet.
	Founding string
	// Instance is a random text that is made together with the peer's data directory.
	Instance string
	// Start is how many processes have used the directory, this one included.
	Start uint64
	// Process is a random text of this process.
	Process string
}

// maxClaim limits every text of a Claim, in bytes.
const maxClaim = 64

// claimTexts is how many texts a Claim has in a handshake.
const claimTexts = 4

func (c Claim) texts() []string {
	start := ""
	if c.Start != 0 {
		start = strconv.FormatUint(c.Start, 10)
	}
	return []string{c.Founding, c.Instance, start, c.Process}
}

// claimOf is the inverse of texts.
func claimOf(t [claimTexts]string) (Claim, error) {
	c := Claim{Founding: t[0], Instance: t[1], Process: t[3]}
	if t[2] == "" {
		return c, nil
	}
	n, err := strconv.ParseUint(t[2], 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != t[2] {
		return Claim{}, fmt.Errorf("%w: the number of starts is %q", errNotHello, t[2])
	}
	c.Start = n
	return c, nil
}
