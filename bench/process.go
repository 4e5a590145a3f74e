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

// peer is a contestant in another process, which does what it is told on its
// standard input, a line each:
//
//	connect S        opens session S          answers "ok"
//	disconnect S     closes session S         answers "ok T", T from just before
//	join S DIR       leads DIR and leaves it  answers "ok D", D being how long it took
//	stand C S DIR    enters the line          no answer
//	leave C          gives up leading         answers "ok T", T from just before
//	reset            closes all sessions      answers "ok"
//	contend N DIR L T  sessions 0 to N-1 take and give back the lock at DIR for L+T;
//	                 answers "ok S" and, for every lock, when it was granted, just
//	                 before it was given back, and when that had returned; S is the
//	                 time at which they began
//	work KIND N DIR L T  sessions 0 to N-1 do at DIR what KIND says (work.go);
//	                 answers "ok S" and the time of each
//	fill S DIR N     session S fills a cache of DIR and its N children, and ends it;
//	                 answers "ok D", how long the filling took
//	watch S DIR      session S fills a cache of DIR, which stays; answers "ok"
//	write S DIR      session S writes to DIR/written; answers "ok D", the time from
//	                 just before until the cache of watch has told of it
//
// Times are in nanoseconds on CLOCK_MONOTONIC. Between its answers it writes
// "leads C T" when candidate C has come to lead, and "failed TEXT". An answer
// that is neither begins with "error". Its first line is "ready VERSION".
type peer struct {
	standers
	title   string
	size    int
	version string
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string // closed when the process has closed its output
	errors  *tail

	asking sync.Mutex
}

// answerLimit bounds one command.
const answerLimit = 30 * time.Second

// longestAnswer is room for the times of half a million locks.
const longestAnswer = 32 << 20

// startPeer starts cmd and waits until it is ready.
func startPeer(title string, size int, cmd *exec.Cmd) (*peer, error) {
	if !sharedClock {
		return nil, errors.New("processes share a clock on Linux only")
	}
	p := &peer{
		standers: newStanders(), title: title, size: size, cmd: cmd,
		answers: make(chan string, 16), errors: &tail{},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = p.errors
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out)
	ready, err := p.answer()
	version, ok := strings.CutPrefix(ready, "ready ")
	if err == nil && !ok {
		err = fmt.Errorf("it said %q", ready)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.version = version
	return p, nil
}

func (p *peer) read(out io.Reader) {
	defer close(p.answers)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, longestAnswer)
	for lines.Scan() {
		line := lines.Text()
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "leads":
			var l leading
			if _, err := fmt.Sscan(rest, &l.candidate, &l.at); err != nil {
				p.tellFailed(fmt.Errorf("%q: %w", line, err))
				continue
			}
			p.leading <- l
		case "failed":
			p.tellFailed(errors.New(rest))
		default:
			p.answers <- line
		}
	}
}

// answer waits for a line that is an answer.
func (p *peer) answer() (string, error) {
	limit := time.NewTimer(answerLimit)
	defer limit.Stop()
	select {
	case line, ok := <-p.answers:
		if !ok {
			return "", fmt.Errorf("%s has ended: %s", p.title, p.errors)
		}
		return line, nil
	case <-limit.C:
		return "", fmt.Errorf("%s does not answer: %s", p.title, p.errors)
	}
}

// ask gives a command and returns the number in its answer, 0 if it has none.
func (p *peer) ask(command string, args ...any) (int64, error) {
	numbers, err := p.askAll(command, args...)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	return numbers[0], nil
}

// askAll is ask for an answer of any number of numbers.
func (p *peer) askAll(command string, args ...any) ([]int64, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if err := p.tell(command, args...); err != nil {
		return nil, err
	}
	line, err := p.answer()
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

func (p *peer) tell(command string, args ...any) error {
	_, err := io.WriteString(p.in, fmt.Sprintln(append([]any{command}, args...)...))
	return err
}

func (p *peer) name() string { return p.title }
func (p *peer) most() int    { return p.size }

func (p *peer) connect(session int) error {
	_, err := p.ask("connect", session)
	return err
}

func (p *peer) disconnect(session int) (int64, error) { return p.ask("disconnect", session) }

func (p *peer) join(session int, dir string, _ bool) (time.Duration, error) {
	took, err := p.ask("join", session, dir)
	return time.Duration(took), err
}

func (p *peer) stand(candidate, session int, dir string) {
	if err := p.tell("stand", candidate, session, dir); err != nil {
		p.tellFailed(err)
	}
}

func (p *peer) leave(candidate int) (int64, error) { return p.ask("leave", candidate) }

func (p *peer) reset() error {
	_, err := p.ask("reset")
	p.forget()
	return err
}

// close ends the process: it ends by itself with its input, or is killed.
func (p *peer) close() error {
	err := p.in.Close()
	kill := time.AfterFunc(5*time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.answers {
		// What it still has to say.
	}
	p.cmd.Wait() // how it ended does not matter
	return err
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
