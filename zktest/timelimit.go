package zktest

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// limitFakeTime starts a timer that panics after d of fake time, unless the ensemble is closed
// before.
func (e *ensemble) limitFakeTime(d time.Duration) {
	head := make([]byte, 256)
	head = head[:runtime.Stack(head, false)]
	if d > 0 && len(bubbleOf(head)) > 0 {
		e.timeLimit = time.AfterFunc(d, func() { panic(describeBubble(d)) })
	}
}

// describeBubble describes the goroutines in the bubble of the caller: the goroutines of
// the test first, and then goroutines that run code of a test file.
func describeBubble(d time.Duration) string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	all := bytes.Split(bytes.TrimSpace(stacks), []byte("\n\n"))
	bubble := bubbleOf(all[0])
	all = slices.DeleteFunc(all[1:], func(g []byte) bool { return !bytes.Equal(bubbleOf(g), bubble) })
	slices.SortStableFunc(all, func(a, b []byte) int { return stackRank(a) - stackRank(b) })
	return fmt.Sprintf("zktest: the test is still running after %v of fake time, the limit set by zktest.WithFakeTimeLimit; its goroutines are:\n\n%s\n",
		d, bytes.Join(all, []byte("\n\n")))
}

// bubbleOf returns the number of a goroutine's synctest bubble, as the first line of its stack shows
// it. The result is empty outside of a bubble.
func bubbleOf(stack []byte) []byte {
	line, _, _ := bytes.Cut(stack, []byte("\n"))
	_, number, _ := bytes.Cut(line, []byte("synctest bubble "))
	return number
}

// stackRank returns the position of a goroutine's stack in the output: 0 for the goroutine of the
// test, 1 for goroutines that run code of a test file, and 2 for others.
func stackRank(stack []byte) int {
	switch {
	case bytes.Contains(stack, []byte("testing.tRunner")):
		return 0
	case bytes.Contains(stack, []byte("_test.go:")):
		return 1
	}
	return 2
}
