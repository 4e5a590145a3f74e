package core

import (
	"context"
	"fmt"
	"log/slog"
)

// logger implements raft.Logger for the engine. It discards debug messages. It logs the engine's informational
// messages at the level Debug and its warnings at the level Info. It panics with a Fault where the engine
// calls Fatal or Panic.
type logger struct{ log *slog.Logger }

func (l logger) logMessage(level slog.Level, text string) {
	l.log.Log(context.Background(), level, text, "from", "raft")
}
func (l logger) Debug(v ...any)              {}
func (l logger) Debugf(string, ...any)       {}
func (l logger) Info(v ...any)               { l.logMessage(slog.LevelDebug, fmt.Sprint(v...)) }
func (l logger) Warning(v ...any)            { l.logMessage(slog.LevelInfo, fmt.Sprint(v...)) }
func (l logger) Warningf(f string, v ...any) { l.logMessage(slog.LevelInfo, fmt.Sprintf(f, v...)) }
func (l logger) Error(v ...any)              { l.logMessage(slog.LevelError, fmt.Sprint(v...)) }
func (l logger) Errorf(f string, v ...any)   { l.logMessage(slog.LevelError, fmt.Sprintf(f, v...)) }
func (l logger) Fatal(v ...any)              { panic(Fault{fmt.Errorf("raft: %s", fmt.Sprint(v...))}) }
func (l logger) Fatalf(f string, v ...any)   { panic(Fault{fmt.Errorf("raft: "+f, v...)}) }
func (l logger) Panic(v ...any)              { panic(Fault{fmt.Errorf("raft: %s", fmt.Sprint(v...))}) }
func (l logger) Panicf(f string, v ...any)   { panic(Fault{fmt.Errorf("raft: "+f, v...)}) }

// Infof formats the message only if it will be logged, because the engine calls Infof often.
func (l logger) Infof(f string, v ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.logMessage(slog.LevelDebug, fmt.Sprintf(f, v...))
	}
}
