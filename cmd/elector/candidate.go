package main

import (
	"context"
	"iter"
	"path"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// candidateInfo describes a candidate of an election, as the commands status, watch and top and the page /leader show
// it.
type candidateInfo struct {
	Name  string `json:"name"`            // the name of the instance
	Value string `json:"value,omitempty"` // the value of the flag --value
	ID    string `json:"id"`
	Token int64  `json:"token"` // the fencing token of the candidate's leadership
	// Joined is the time at which the candidate joined the election. It is zero if the backend does not record this
	// time.
	Joined time.Time `json:"joined,omitzero"`
	// LeadsSince is when the backend reported that the candidate has become the leader. It is zero if the candidate
	// was the leader already in the first report.
	LeadsSince time.Time `json:"leads_since,omitzero"`
	// Session is the session of the candidate. It is empty if the backend has no sessions.
	Session string `json:"session,omitempty"`
}

func newCandidateInfo(info leaderelection.CandidateInfo) candidateInfo {
	return candidateInfo{Name: info.Name, Value: info.Value, ID: info.ID, Token: info.Token}
}

// isNamed reports whether name identifies this candidate: as the name of its instance, as its ID, or as the last
// element of its ID.
func (c candidateInfo) isNamed(name string) bool {
	return c.Name == name || c.ID == name || path.Base(c.ID) == name
}

// observation contains the leader of an election at one time, which is nil if there is no leader. An observation with
// an error is the last one.
type observation struct {
	leader *candidateInfo
	err    error
}

// streamLeaders sends the leaders of a sequence to a channel. It omits a leader that is equal to the
// previous one. It closes the channel when ctx is done, after an error, and when the sequence ends.
func streamLeaders(ctx context.Context, leaders iter.Seq2[*candidateInfo, error]) <-chan observation {
	out := make(chan observation)
	go func() {
		defer close(out)
		first, last := true, candidateInfo{} // last is the zero value while there is no leader
		for leader, err := range leaders {
			if ctx.Err() != nil {
				return
			}
			current := candidateInfo{}
			if leader != nil {
				current = *leader // copy the leader, because the receiver of the observation may change it
			}
			if !first && err == nil && current == last {
				continue
			}
			first, last = false, current
			select {
			case out <- observation{leader, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// convertObservations returns the leaders in the observations of a library.
func convertObservations(in <-chan leaderelection.Observation, convert func(leaderelection.CandidateInfo) candidateInfo) iter.Seq2[*candidateInfo, error] {
	return func(yield func(*candidateInfo, error) bool) {
		for o := range in {
			var leader *candidateInfo
			if o.Leader != nil {
				c := convert(*o.Leader)
				leader = &c
			}
			if !yield(leader, o.Err) {
				return
			}
		}
	}
}
