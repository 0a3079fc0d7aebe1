package proxy

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				for lines := bufio.NewScanner(c); lines.Scan(); {
					_, _ = c.Write(append(lines.Bytes(), '\n'))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func say(t *testing.T, c net.Conn, within time.Duration) error {
	t.Helper()
	_, err := c.Write([]byte("hello\n"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
	_, err = bufio.NewReader(c).ReadString('\n')
	return err
}

func TestProxy(t *testing.T) {
	p, err := New("127.0.0.1:1")
	require.NoError(t, err)
	defer p.Close()
	p.SetTarget(echo(t))
	c, err := net.Dial("tcp", p.Address())
	require.NoError(t, err)
	require.NoError(t, say(t, c, time.Minute))

	p.Hold()
	require.ErrorContains(t, say(t, c, 50*time.Millisecond), "timeout", "held back")
	p.Resume()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	answer, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", answer, "what was held back arrives")

	p.Cut()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err, "the connection has ended")
	require.NotErrorIs(t, err, net.ErrClosed)
	p.Restore()
	c, err = net.Dial("tcp", p.Address())
	require.NoError(t, err)
	require.NoError(t, say(t, c, time.Minute))
}
