package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/faultschedule"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// record records the calls of one schedule and their results. Each payload occurs in one item only.
type record struct {
	*faultschedule.Trial

	mu           sync.Mutex
	puts         map[string]error
	deliveries   []*deliveryRecord
	acks         map[string][]error
	acknowledged map[string]time.Duration // when the acknowledgement of a payload was confirmed
	deadLetters  map[string]int
	// exempted contains the times at which the test has expired sessions, by session. exemptSession explains
	// this exemption.
	exempted map[int64]time.Duration
}

// deliveryRecord is one delivery of an item. It lasts from the time at which the consumer received the item
// until Done of the item was closed.
type deliveryRecord struct {
	client, id, payload string
	token               int64
	attempt             int
	session             int64
	from, until         time.Duration
	done                bool
}

func (d *deliveryRecord) String() string {
	return fmt.Sprintf("%s has %s (%s, attempt %d, token %d, %v to %v)", d.client, d.payload, d.id, d.attempt, d.token, d.from, d.until)
}

func newRecord(x *faultschedule.Trial) *record {
	return &record{
		Trial: x,
		puts:  map[string]error{}, acks: map[string][]error{}, acknowledged: map[string]time.Duration{},
		deadLetters: map[string]int{}, exempted: map[int64]time.Duration{},
	}
}

func (r *record) addPut(client, payload string, err error) {
	r.Note("%s: put %s: %v", client, payload, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.puts[payload] = err
}

// addDelivery records a delivery, and its end when Done of the item is closed. It then calls ended.
func (r *record) addDelivery(client string, i *Item, ended func()) {
	d := &deliveryRecord{client: client, id: i.ID(), payload: string(i.Data()), token: i.Token(), attempt: i.Attempt(), session: i.d.session}
	r.mu.Lock()
	d.from = r.Now()
	r.deliveries = append(r.deliveries, d)
	r.mu.Unlock()
	r.Note("%v, err %v", d, i.Err())
	context.AfterFunc(i.Context(), func() {
		defer ended()
		r.mu.Lock()
		d.until, d.done = r.Now(), true
		r.mu.Unlock()
		r.Note("%s: %s has ended: %v", client, d.payload, i.Err())
	})
}

func (r *record) addAck(client string, i *Item, err error) {
	r.Note("%s: ack %s: %v", client, i.Data(), err)
	r.mu.Lock()
	defer r.mu.Unlock()
	payload := string(i.Data())
	r.acks[payload] = append(r.acks[payload], err)
	if err == nil {
		r.acknowledged[payload] = r.Now()
	}
}

// addLateAck records that an acknowledgement was confirmed by a second call.
func (r *record) addLateAck(i *Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	acks := r.acks[string(i.Data())]
	for _, err := range acks {
		if err == nil {
			return
		}
	}
	r.acks[string(i.Data())] = append(acks, nil)
}

func (r *record) addDeadLetter(payload string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadLetters[payload]++
}

// exemptSession records that the test expires a session while its lease is valid. Until the client learns that its
// session has expired, other clients may have the same items without a violation of the guarantees.
func (r *record) exemptSession(session int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.exempted[session]; !known {
		r.exempted[session] = r.Now()
	}
}

// isExempt reports whether the test has expired the session of the delivery d before the time at. The caller
// holds mu.
func (r *record) isExempt(d *deliveryRecord, at time.Duration) bool {
	since, exempt := r.exempted[d.session]
	return exempt && at >= since
}

// scheduleCounts counts the events of a schedule. lost and unconfirmed count acknowledgements.
type scheduleCounts struct{ delivered, acknowledged, lost, unconfirmed, deadLetters int }

func (c *scheduleCounts) add(d scheduleCounts) {
	c.delivered += d.delivered
	c.acknowledged += d.acknowledged
	c.lost += d.lost
	c.unconfirmed += d.unconfirmed
	c.deadLetters += d.deadLetters
}

// counts returns how many events have occurred in the schedule so far.
func (r *record) counts() scheduleCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := scheduleCounts{delivered: len(r.deliveries), deadLetters: len(r.deadLetters)}
	for _, acks := range r.acks {
		for _, err := range acks {
			switch {
			case err == nil:
				c.acknowledged++
			case errors.Is(err, recipes.ErrUnconfirmed):
				c.unconfirmed++
			default:
				c.lost++
			}
		}
	}
	return c
}

// verify returns the violations of the guarantees at the end of a schedule, when the queue is empty. written
// contains, for each payload, how many znodes its acknowledgements have created.
func (r *record) verify(written map[string]int, maxAttempts int) (violations []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	deliveries := map[string][]*deliveryRecord{}
	for _, d := range r.deliveries {
		deliveries[d.payload] = append(deliveries[d.payload], d)
	}
	for payload, putErr := range r.puts {
		if v := r.verifyItem(payload, putErr, written[payload], len(deliveries[payload])); v != "" {
			violations = append(violations, payload+" "+v)
		}
	}
	for _, ds := range deliveries {
		violations = append(violations, r.verifyDeliveries(ds, maxAttempts)...)
	}
	return violations
}

// verifyItem verifies that an item that was put was acknowledged once, or is one dead letter. It returns a
// description of the violation, or "". The caller holds mu.
func (r *record) verifyItem(payload string, putErr error, written, deliveries int) string {
	confirmed, unconfirmed, letters := 0, 0, r.deadLetters[payload]
	for _, err := range r.acks[payload] {
		switch {
		case err == nil:
			confirmed++
		case errors.Is(err, recipes.ErrUnconfirmed):
			unconfirmed++
		}
	}
	switch {
	case confirmed > 1:
		return fmt.Sprintf("was acknowledged %d times", confirmed)
	case written > 1:
		return fmt.Sprintf("was acknowledged %d times according to the server", written)
	case letters > 1:
		return fmt.Sprintf("is %d dead letters", letters)
	case written+letters > 1:
		return "was acknowledged and is a dead letter"
	case confirmed == 1 && written == 0:
		return "was acknowledged, and the operations of the acknowledgement were not applied"
	case written == 1 && confirmed == 0 && unconfirmed == 0:
		return "was acknowledged, but Ack has returned an error"
	case putErr == nil && written+letters == 0:
		return "is lost"
	case putErr != nil && !errors.Is(putErr, recipes.ErrUnconfirmed) && written+letters+deliveries > 0:
		return fmt.Sprintf("was put, but Put has returned %v", putErr)
	}
	return ""
}

// verifyDeliveries verifies that the deliveries of one item do not overlap, and that their tokens increase.
// The caller holds mu.
func (r *record) verifyDeliveries(ds []*deliveryRecord, maxAttempts int) (violations []string) {
	violate := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	for i, a := range ds {
		if a.id != ds[0].id {
			violate("%s was put twice: %s and %s", a.payload, a.id, ds[0].id)
		}
		if maxAttempts > 0 && a.attempt > maxAttempts || a.attempt < 1 {
			violate("%v: the number of the attempt is invalid", a)
		}
		if at, acknowledged := r.acknowledged[a.payload]; acknowledged && a.from > at && !r.isExempt(a, a.from) {
			violate("%v, although the item was acknowledged at %v", a, at)
		}
		if !a.done {
			violate("%v has not ended", a)
		}
		for _, b := range ds[i+1:] {
			if from := max(a.from, b.from); from < min(a.until, b.until) && !r.isExempt(a, from) && !r.isExempt(b, from) {
				violate("two consumers have one item at the same time: %v and %v", a, b)
			}
			if b.from > a.from && b.token <= a.token && !r.isExempt(b, b.from) {
				violate("%v, then %v: the token has not increased", a, b)
			}
		}
	}
	return violations
}
