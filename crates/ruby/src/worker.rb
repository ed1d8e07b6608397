# encoding: utf-8
# frozen_string_literal: true

# The Ruby side of the host: reads a request from a pipe, evaluates its code, writes the reply to another pipe, and
# reads the next request.
#
# Evaluated code cannot reach these pipes through the standard streams. It may redefine methods that this script calls
# on foreign objects, so the originals are kept below. If it breaks anything else, the process ends, and the host
# notices and answers the call. All exceptions are rescued, not only standard ones, because any exception is an
# answer.
#
# Runs as `ruby -e`, so frames of this script start with `-e:`. Needs Ruby 3.0 or later.

require "fcntl"
require "socket"
require "io/nonblock"
require "io/wait"

# Scripts use these to detect their environment. There is no model, and nothing else of the SketchUp API.
module Sketchup
  def self.version = "26.0.0"
  def self.active_model = nil
end

module SupexRuntime
  VERSION = "0.2.0"

  # The class of `self` in snippets. Methods and constants of snippets are defined in it.
  class BridgeServer
    # The scope of one snippet: without local variables, inside of this class.
    def eval_ruby = ::Kernel.binding
  end
end

module ParlorWorker
  PID = $$
  SNIPPET_SELF = SupexRuntime::BridgeServer.new
  SNIPPET_BINDING = SupexRuntime::BridgeServer.instance_method(:eval_ruby)
  SupexRuntime::BridgeServer.send(:remove_method, :eval_ruby)

  CLASS_OF = Kernel.instance_method(:class)
  NAME_OF = Module.instance_method(:to_s)
  BACKTRACE_OF = Exception.instance_method(:backtrace)

  # Whether exceptions that other threads raise in this one arrive. Compared by identity, because code may redefine
  # `hash`.
  INTERRUPTIBLE = {}.compare_by_identity.update(Object => :immediate).freeze
  UNINTERRUPTIBLE = {}.compare_by_identity.update(Object => :never).freeze

  HEADER_BYTES = 13
  READ_BYTES = 64 * 1024
  # Reused for each read, because new strings of that size would cause more garbage collection.
  READ_BUFFER = String.new(capacity: READ_BYTES)
  RECEIVED = String.new(encoding: Encoding::BINARY)
  OWN_FRAME = "-e:"
  FRAME = /\A(?<file>.+?):(?<line>\d+)(?::|\z)/m
  ASSUMED_UTF8 = [Encoding::UTF_8, Encoding::ASCII_8BIT, Encoding::US_ASCII].freeze

  # Delivers three pipes, and stays open: it closes when the host is gone.
  # In a sandbox it is the standard input, and the host waits for a byte.
  def self.host_socket(name)
    return UNIXSocket.new("\0#{name}") unless name == "-"

    socket = UNIXSocket.for_fd(STDIN.fcntl(Fcntl::F_DUPFD, 3))
    socket.close_on_exec = true
    STDIN.reopen(File::NULL)
    socket.syswrite("u")
    socket
  end
  private_class_method :host_socket

  HOST_SOCKET = host_socket(ARGV.shift)
  REQUESTS = HOST_SOCKET.recv_io(IO, "r")
  REPLIES = HOST_SOCKET.recv_io(IO, "w")
  # Both standard streams go into one pipe, so that printed text stays in order.
  CAPTURE = HOST_SOCKET.recv_io(IO, "w")
  [STDOUT, STDERR].each { |stream| stream.reopen(CAPTURE) }
  REPLIES.sync = true

  # The reply for code that ended the thread it ran in.
  ENDED_ITS_THREAD = ["raised", "ThreadError", "the code ended the thread that evaluated it", "", "0"].freeze
  # The reply for an exception that cannot be described, for example because there is no memory.
  UNDESCRIBED = ["raised", "Exception", "the code raised an exception that cannot be described", "", "0"].freeze

  # Extends a stream, so that it writes a mark into the captured output when the stream changes.
  class StreamMarker < Module
    def initialize(letter)
      super()
      define_method(:write) do |*texts|
        ParlorWorker.mark_stream(letter)
        super(*texts)
      end
    end
  end
  STDOUT_MARKER = StreamMarker.new("o")
  STDERR_MARKER = StreamMarker.new("e")

  # Marks warnings as standard error, because Ruby does not write them through the stream's methods.
  module WarningMarker
    def warn(*, **)
      ParlorWorker.mark_stream("e")
      super
    end
  end

  class << self
    def main
      _, _, @mark, limits = receive
      memory, @max_value_bytes, @max_message_bytes, @max_frames = limits.split.map(&:to_i)
      limit_memory(memory)
      @current_stream = "o"
      capture(STDOUT, STDOUT_MARKER)
      capture(STDERR, STDERR_MARKER)
      Warning.extend(WarningMarker)
      start_watchdog
      load_library(ENV["SUPEX_STDLIB_PATH"])
      start_serving
      watch_host
    end

    def mark_stream(letter)
      return if @current_stream == letter

      @current_stream = letter
      CAPTURE.syswrite(@mark + letter)
    end

    private

    # Sets the hard limit too, so that evaluated code cannot raise it again.
    def limit_memory(bytes)
      _, hard = Process.getrlimit(:DATA)
      limit = [bytes, hard].min
      Process.setrlimit(:DATA, limit, limit)
    end

    def capture(stream, marker)
      stream.sync = true
      stream.extend(marker)
    end

    def load_library(path)
      load(path) if path && File.file?(path)
    rescue Exception => error
      warn("SUPEX_STDLIB_PATH: #{path} cannot be loaded: #{error.message}")
    end

    # Not in the main thread, where a `return` would silently end the process.
    def start_serving
      Thread.new { serve }.report_on_exception = false
    end

    def serve
      # Exceptions that other threads raise in this one wait until it evaluates code.
      Thread.handle_interrupt(UNINTERRUPTIBLE) do
        while (request = receive)
          answer(*request)
        end
      end
      Process.exit!(0)
    rescue Exception
      Process.exit!(70)
    ensure
      # Reached only when evaluated code killed this thread.
      start_serving
    end

    def answer(letter, number, path, code)
      outcome = ENDED_ITS_THREAD
      outcome = evaluate(letter, path, code)
    ensure
      # The code may have forked, and this may be the child process.
      Process.exit!(0) unless $$ == PID
      # All printed text must be in its pipe before the reply is in the other.
      STDOUT.flush unless STDOUT.closed?
      reply(number, outcome)
    end

    def evaluate(letter, path, code)
      reopen_streams
      code.force_encoding(Encoding::UTF_8)
      path.force_encoding(Encoding::UTF_8)
      text = Thread.handle_interrupt(INTERRUPTIBLE) do
        case letter
        when "s" then "#{SNIPPET_BINDING.bind_call(SNIPPET_SELF).eval(code, path, 1)}"
        when "f" then "#{TOPLEVEL_BINDING.eval(code, path, 1)}"
        when "c" then "#{TOPLEVEL_BINDING.eval(code, path, 1).inspect}"
        end
      end
      value(text)
    rescue Exception => error
      describe_safely(error)
    end

    # Reopens streams that earlier code closed. Ruby leaves the descriptors of standard streams open.
    def reopen_streams
      $stdout = capture(IO.for_fd(1, "w", autoclose: false), STDOUT_MARKER) if IO === $stdout && $stdout.closed?
      $stderr = capture(IO.for_fd(2, "w", autoclose: false), STDERR_MARKER) if IO === $stderr && $stderr.closed?
    end

    def value(text)
      return ["large", text.bytesize.to_s] if text.bytesize > @max_value_bytes

      # ASCII is the same in every encoding that could be converted, and most values are ASCII.
      return ["value", text] if text.ascii_only?

      text = utf8(text)
      text.bytesize > @max_value_bytes ? ["large", text.bytesize.to_s] : ["value", text]
    end

    def describe_safely(error)
      describe(error)
    rescue Exception
      UNDESCRIBED
    end

    def describe(error)
      frames = frames_of(error)
      message = truncate(message_of(error))
      kind, location = SyntaxError === error ? ["syntax", message] : ["raised", frames.first]
      found = FRAME.match(location.to_s)
      [kind, truncate(utf8(NAME_OF.bind_call(CLASS_OF.bind_call(error)))), message,
       found ? found[:file] : "", found ? found[:line] : "0", *frames]
    end

    def message_of(error)
      Thread.handle_interrupt(INTERRUPTIBLE) { utf8("#{error.message}") }
    rescue Exception
      "(its message cannot be had: asking for it raised another exception)"
    end

    def frames_of(error)
      frames = BACKTRACE_OF.bind_call(error)
      frames = [] unless Array === frames
      frames = frames.reject { |frame| frame.start_with?(OWN_FRAME) }
      frames.first(@max_frames).map { |frame| truncate(utf8(frame)) }
    end

    def truncate(text)
      return text if text.bytesize <= @max_message_bytes

      cut = text.bytesize - @max_message_bytes
      "#{text.byteslice(0, @max_message_bytes).scrub("")} [… #{cut} bytes cut here …]"
    end

    def utf8(text)
      plain = String.new(text)
      if ASSUMED_UTF8.include?(plain.encoding)
        plain.force_encoding(Encoding::UTF_8).scrub
      else
        plain.encode(Encoding::UTF_8, invalid: :replace, undef: :replace)
      end
    rescue EncodingError
      plain.force_encoding(Encoding::UTF_8).scrub
    end

    # Reads the next request: a letter for its kind, its number, a path and code. Nil when the host has closed the
    # pipe.
    def receive
      RECEIVED << REQUESTS.readpartial(READ_BYTES, READ_BUFFER) until (request = take_request)
      request
    rescue EOFError
      nil
    end

    # After the letter and the number come the sizes of path and code, then both.
    def take_request
      return if RECEIVED.bytesize < HEADER_BYTES

      letter, number, path_bytes, code_bytes = RECEIVED.unpack("aN3")
      return if RECEIVED.bytesize < HEADER_BYTES + path_bytes + code_bytes

      RECEIVED.slice!(0, HEADER_BYTES)
      [letter, number, RECEIVED.slice!(0, path_bytes), RECEIVED.slice!(0, code_bytes)]
    end

    # Writes a reply: the number of the request, the count of fields, their sizes, then the fields.
    def reply(number, fields)
      REPLIES.write(fields.size == 2 ? two_field_frame(number, *fields) : frame(number, fields))
    end

    def frame(number, fields)
      form = "N#{fields.size + 2}#{"a*" * fields.size}"
      [number, fields.size, *fields.map(&:bytesize), *fields].pack(form)
    end

    # A faster version for two fields, as most replies have.
    def two_field_frame(number, kind, text)
      [number, 2, kind.bytesize, text.bytesize, kind, text].pack("N4a*a*")
    end

    # Starts a shell that kills the group of this worker when the host is gone. The worker cannot do that in every case:
    # the kernel may kill it before its end of the socket closes. The shell is a grandchild in a group of its own, so
    # evaluated code neither waits for it nor signals it with the group. Without a shell, only the main thread watches.
    def start_watchdog
      return unless Process.getpgrp == PID

      # The shell could not wait for a non-blocking socket. The main thread polls it, which works with both.
      HOST_SOCKET.nonblock = false
      script = "{ read -r _ <&3; kill -KILL -#{PID}; } &"
      shell = Process.spawn({}, "/bin/sh", "-c", script, 3 => HOST_SOCKET, in: "/dev/null", out: "/dev/null",
                            err: "/dev/null", pgroup: true, unsetenv_others: true, chdir: "/")
      Process.wait(shell)
    rescue SystemCallError
      nil
    end

    # Runs in the main thread: ends everything when the host is gone, whatever is being evaluated.
    def watch_host
      HOST_SOCKET.wait(IO::PRIORITY, nil)
      kill_group
    rescue SignalException => signal
      kill_group if HOST_SOCKET.wait(IO::PRIORITY, 0)
      Signal.trap(signal.signo, "SYSTEM_DEFAULT")
      Process.kill(signal.signo, PID)
    ensure
      Process.exit!(1)
    end

    # Kills the worker with all processes that evaluated code has started, which are in the process group of the
    # worker.
    def kill_group
      Process.kill(:KILL, Process.getpgrp == PID ? 0 : PID)
    end
  end
end
Object.send(:private_constant, :ParlorWorker)

$0 = "parlor-ruby"
ParlorWorker.main
