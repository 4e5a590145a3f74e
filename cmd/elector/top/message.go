package top

import "time"

// Candidate is a candidate of an election.
type Candidate struct {
	Name, ID, Session string
	Token             int64
	Joined            time.Time // the time at which the candidate joined the election; zero if the time is unknown
}

// Message is an event for [State.Update]: one of the types below, or a Key.
type Message any

type (
	// Listed reports the candidates of an election in their order, with the leader first.
	Listed struct {
		At         time.Time
		Election   string
		Candidates []Candidate
	}
	// Missing reports that an election does not exist.
	Missing struct {
		At       time.Time
		Election string
	}
	// Failed reports that a request for the candidates of an election has failed.
	Failed struct {
		At       time.Time
		Election string
		Err      error
	}
	// Found adds the elections that a search has found to those on the screen.
	Found struct {
		Elections []string
		Note      string // a problem of the search, or ""
	}
	// Resigned is the result of a Request: whether the candidate has left its position.
	Resigned struct {
		At      time.Time
		Request Request
		Err     error // the reason why the candidate has not left its position, or nil
	}
	// Tick reports the current time.
	Tick struct{ At time.Time }
	// Size reports the size of the screen.
	Size struct{ Width, Height int }
	// Typed reports that the user has typed a character.
	Typed struct{ Text string }
)

// Request requests a candidate to hand over its leadership or its position.
type Request struct {
	Election  string
	Candidate Candidate
}
