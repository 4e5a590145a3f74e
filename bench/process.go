package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// process is a contestant in another process. It receives commands on its standard input, one per
// line, which correspond to the methods of [contestant]:
//
//	connect S              opens session S            responds "ok"
//	disconnect S           closes session S           responds "ok T", T just before it
//	time_join S DIR        leads and leaves DIR       responds "ok D", D until it led
//	join RECIPE C S DIR    joins the queue            no response
//	leave C                leaves the queue           responds "ok T", T just before it
//	leave_next N           the next N heads leave     responds "ok"
//	reset                  closes all sessions        responds "ok"
//	contend N M DIR H W L  acquires M locks with N    responds "ok T", and for each acquisition the
//	                       sessions for W+L, holds    number of the lock and three times: when it was
//	                       each for H                 granted, just before its release, and after its
//	                                                  release; T is the start
//	repeat O N DIR W L     repeats operation O        responds "ok T" and the time of each completion
//	fill_cache S DIR N     fills and closes a cache   responds "ok D", D until it was filled
//	watch_cache S DIR      fills a cache              responds "ok"
//	write_cached S DIR     writes DIR/written         responds "ok D", D until the cache of
//	                                                  watch_cache has reported the change
//
// Times and durations are in nanoseconds; times are those of CLOCK_MONOTONIC. Between its responses
// the process writes "acquired C T" when candidate C has become the head of the queue, and "failed
// TEXT" if a candidate has failed. A failed command responds "error TEXT". The first line is "ready
// VERSION".
type process struct {
	title     string
	limit     int // the maximum number of candidates
	version   string
	events    *events
	cmd       *exec.Cmd
	in        io.WriteCloser
	responses chan string // closed when the process has closed its output
	stderr    *lastOutput

	calling sync.Mutex // held while a command is sent and its response is received
}

// responseTimeout limits the time until a contestant responds to a command.
const responseTimeout = 30 * time.Second

// maxResponse is the maximum length of a response: the times of half a million locks.
const maxResponse = 32 << 20

// startProcess starts cmd, and waits until the process reports that it is ready.
func startProcess(title string, limit int, cmd *exec.Cmd) (*process, error) {
	if !sharedClock {
		return nil, errors.New("processes have a common clock only on Linux")
	}
	p := &process{
		title: title, limit: limit, events: newEvents(), cmd: cmd,
		responses: make(chan string, 16), stderr: &lastOutput{},
	}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = p.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.readOutput(out)
	ready, err := p.receive()
	version, ok := strings.CutPrefix(ready, "ready ")
	if err == nil && !ok {
		err = fmt.Errorf("the first line of the output is %q, not ready and the version", ready)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.version = version
	return p, nil
}

func (p *process) readOutput(out io.Reader) {
	defer close(p.responses)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxResponse)
	for lines.Scan() {
		line := lines.Text()
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "acquired":
			var a acquisition
			if _, err := fmt.Sscan(rest, &a.candidate, &a.at); err != nil {
				p.events.reportFailure(fmt.Errorf("%q: %w", line, err))
				continue
			}
			p.events.acquired <- a
		case "failed":
			p.events.reportFailure(errors.New(rest))
		default:
			p.responses <- line
		}
	}
}

// receive waits for the response to the last command, and returns it.
func (p *process) receive() (string, error) {
	limit := time.NewTimer(responseTimeout)
	defer limit.Stop()
	select {
	case line, ok := <-p.responses:
		if !ok {
			return "", fmt.Errorf("%s has exited: %s", p.title, p.stderr)
		}
		return line, nil
	case <-limit.C:
		return "", fmt.Errorf("%s does not respond within %v: %s", p.title, responseTimeout, p.stderr)
	}
}

// call executes a command and returns the number in the response, or 0 if it contains none.
func (p *process) call(command string, args ...any) (int64, error) {
	numbers, err := p.callNumbers(command, args...)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	return numbers[0], nil
}

// callForDuration executes a command and returns the duration in the response.
func (p *process) callForDuration(command string, args ...any) (time.Duration, error) {
	took, err := p.call(command, args...)
	return time.Duration(took), err
}

// callNumbers executes a command and returns all numbers in the response.
func (p *process) callNumbers(command string, args ...any) ([]int64, error) {
	p.calling.Lock()
	defer p.calling.Unlock()
	if err := p.send(command, args...); err != nil {
		return nil, err
	}
	line, err := p.receive()
	if err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(line, "ok")
	if !ok {
		return nil, fmt.Errorf("%s: %s: %s", p.title, command, line)
	}
	var numbers []int64
	for word := range strings.FieldsSeq(rest) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", p.title, command, err)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func (p *process) send(command string, args ...any) error {
	_, err := io.WriteString(p.in, fmt.Sprintln(append([]any{command}, args...)...))
	return err
}

func (p *process) name() string                     { return p.title }
func (p *process) maxCandidates() int               { return p.limit }
func (p *process) processID() int                   { return p.cmd.Process.Pid }
func (p *process) acquisitions() <-chan acquisition { return p.events.acquired }
func (p *process) failures() <-chan error           { return p.events.failed }

func (p *process) connect(session int) error {
	_, err := p.call("connect", session)
	return err
}

func (p *process) disconnect(session int) (int64, error) { return p.call("disconnect", session) }

func (p *process) timeJoin(session int, dir string, _ bool) (time.Duration, error) {
	return p.callForDuration("time_join", session, dir)
}

func (p *process) prepare(int, int, string) error { return nil }

func (p *process) join(r recipe, candidate, session int, dir string) {
	if err := p.send("join", r, candidate, session, dir); err != nil {
		p.events.reportFailure(err)
	}
}

func (p *process) leave(candidate int) (int64, error) { return p.call("leave", candidate) }

func (p *process) leaveNext(n int) error {
	_, err := p.call("leave_next", n)
	return err
}

func (p *process) queued() (int, error) { return 0, errors.ErrUnsupported }

func (p *process) reset() error {
	_, err := p.call("reset")
	p.events.discardUnread()
	return err
}

// close closes the standard input of the process, which makes it exit. If the process does not exit,
// close kills it.
func (p *process) close() error {
	err := p.in.Close()
	kill := time.AfterFunc(5*time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.responses {
		// Discard the remaining output.
	}
	p.cmd.Wait() // the exit status does not matter
	return err
}

// lastOutput is a writer that keeps the last bytes of the output.
type lastOutput struct {
	mu   sync.Mutex
	text []byte
}

func (o *lastOutput) Write(b []byte) (int, error) {
	const limit = 2000
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	o.text = o.text[max(0, len(o.text)-limit):]
	return len(b), nil
}

func (o *lastOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.text))
}
