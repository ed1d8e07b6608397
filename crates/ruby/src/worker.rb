# encoding: utf-8
# frozen_string_literal: true

# The Ruby side of the host: takes a request from a pipe, evaluates it, says what came of it in another
# pipe, and takes the next one.
#
# Nothing that evaluated code does to standard streams can reach these. Where that code could
# have redefined a method this script needs on foreign objects, the original is kept below. If it
# breaks the rest, the process ends, which the host notices and answers. All exceptions are rescued,
# not only standard ones: whatever code raises is an answer.
#
# Runs as `ruby -e`, so frames of this script start with `-e:`. Needs Ruby 3.0 or later.

require "socket"
require "io/wait"

# What scripts ask to learn where they are. There is no model, and nothing else of the SketchUp API.
module Sketchup
  def self.version = "26.0.0"
  def self.active_model = nil
end

module SupexRuntime
  VERSION = "0.2.0"

  # `self` of snippets. Their methods and constants land in here.
  class BridgeServer
    # The scope of one snippet: no local variables, this class around it.
    def eval_ruby = ::Kernel.binding
  end
end

module ParlorWorker
  PID = $$
  HOST = SupexRuntime::BridgeServer.new
  NEW_SCOPE = SupexRuntime::BridgeServer.instance_method(:eval_ruby)
  SupexRuntime::BridgeServer.send(:remove_method, :eval_ruby)

  CLASS_OF = Kernel.instance_method(:class)
  NAME_OF = Module.instance_method(:to_s)
  BACKTRACE_OF = Exception.instance_method(:backtrace)

  # When what other threads throw arrives. By identity, since code may redefine `hash`.
  AT_ONCE = {}.compare_by_identity.update(Object => :immediate).freeze
  NOT_NOW = {}.compare_by_identity.update(Object => :never).freeze

  HEADER_BYTES = 13
  READ_BYTES = 64 * 1024
  # Used again and again, since each new one of that size would bring garbage collection closer.
  PIECE = String.new(capacity: READ_BYTES)
  UNREAD = String.new(encoding: Encoding::BINARY)
  OWN_FRAME = "-e:"
  FRAME = /\A(?<file>.+?):(?<line>\d+)(?::|\z)/m
  SEEN_AS_UTF8 = [Encoding::UTF_8, Encoding::ASCII_8BIT, Encoding::US_ASCII].freeze

  # Brings three pipes, and stays open to tell when the host is gone.
  HOST_IS_THERE = UNIXSocket.new("\0#{ARGV.shift}")
  REQUESTS = HOST_IS_THERE.recv_io(IO, "r")
  REPLIES = HOST_IS_THERE.recv_io(IO, "w")
  # What is printed goes into one pipe, so that it stays in order.
  CAPTURE = HOST_IS_THERE.recv_io(IO, "w")
  [STDOUT, STDERR].each { |stream| stream.reopen(CAPTURE) }
  REPLIES.sync = true

  # What is answered for code that ended the thread it ran in.
  ENDED_ITS_THREAD = ["raised", "ThreadError", "the code ended the thread that evaluated it", "", "0"].freeze
  # What is answered where not even the exception's class can be asked for, as without memory.
  UNDESCRIBED = ["raised", "Exception", "the code raised an exception that cannot be described", "", "0"].freeze

  # Tells in the captured output whose text follows, when it is another stream's than before.
  class Turn < Module
    def initialize(letter)
      super()
      define_method(:write) do |*texts|
        ParlorWorker.turn_to(letter)
        super(*texts)
      end
    end
  end
  OUT = Turn.new("o")
  ERR = Turn.new("e")

  # Ruby writes warnings to standard error past its methods.
  module Warned
    def warn(*, **)
      ParlorWorker.turn_to("e")
      super
    end
  end

  class << self
    def main
      _, _, @mark, limits = receive
      memory, @largest_value, @longest_message, @most_frames = limits.split.map(&:to_i)
      limit_memory(memory)
      @turn = "o"
      captured(STDOUT, OUT)
      captured(STDERR, ERR)
      Warning.extend(Warned)
      load_library(ENV["SUPEX_STDLIB_PATH"])
      start_serving
      watch
    end

    def turn_to(letter)
      return if @turn == letter

      @turn = letter
      CAPTURE.syswrite(@mark + letter)
    end

    private

    # The hard limit too, so that evaluated code cannot raise it again.
    def limit_memory(bytes)
      _, hard = Process.getrlimit(:DATA)
      least = [bytes, hard].min
      Process.setrlimit(:DATA, least, least)
    end

    def captured(stream, turn)
      stream.sync = true
      stream.extend(turn)
    end

    def load_library(path)
      load(path) if path && File.file?(path)
    rescue Exception => error
      warn("SUPEX_STDLIB_PATH: #{path} cannot be loaded: #{error.message}")
    end

    # Not the main thread: there a `return` would silently end the process.
    def start_serving
      Thread.new { serve }.report_on_exception = false
    end

    def serve
      # What other threads throw at this one waits until code of theirs is evaluated.
      Thread.handle_interrupt(NOT_NOW) do
        while (request = receive)
          answer(*request)
        end
      end
      Process.exit!(0)
    rescue Exception
      Process.exit!(70)
    ensure
      # Here only when the thread was killed, by what it evaluated.
      start_serving
    end

    def answer(letter, number, path, code)
      outcome = ENDED_ITS_THREAD
      outcome = evaluate(letter, path, code)
    ensure
      # The code may have forked, and this be the child.
      Process.exit!(0) unless $$ == PID
      # All that was printed is in the pipe before the reply is in its own.
      STDOUT.flush unless STDOUT.closed?
      reply(number, outcome)
    end

    def evaluate(letter, path, code)
      revive_streams
      code.force_encoding(Encoding::UTF_8)
      path.force_encoding(Encoding::UTF_8)
      text = Thread.handle_interrupt(AT_ONCE) do
        case letter
        when "s" then "#{NEW_SCOPE.bind_call(HOST).eval(code, path, 1)}"
        when "f" then "#{TOPLEVEL_BINDING.eval(code, path, 1)}"
        when "c" then "#{TOPLEVEL_BINDING.eval(code, path, 1).inspect}"
        end
      end
      value(text)
    rescue Exception => error
      described(error)
    end

    # Code that closed a stream does not take it from those who come later. Ruby leaves the
    # descriptors of standard streams open.
    def revive_streams
      $stdout = captured(IO.for_fd(1, "w", autoclose: false), OUT) if IO === $stdout && $stdout.closed?
      $stderr = captured(IO.for_fd(2, "w", autoclose: false), ERR) if IO === $stderr && $stderr.closed?
    end

    def value(text)
      return ["large", text.bytesize.to_s] if text.bytesize > @largest_value

      # The same in every encoding that could be converted, and far the most are such.
      return ["value", text] if text.ascii_only?

      text = utf8(text)
      text.bytesize > @largest_value ? ["large", text.bytesize.to_s] : ["value", text]
    end

    def described(error)
      describe(error)
    rescue Exception
      UNDESCRIBED
    end

    def describe(error)
      frames = frames_of(error)
      message = shortened(message_of(error))
      kind, place = SyntaxError === error ? ["syntax", message] : ["raised", frames.first]
      found = FRAME.match(place.to_s)
      [kind, shortened(utf8(NAME_OF.bind_call(CLASS_OF.bind_call(error)))), message,
       found ? found[:file] : "", found ? found[:line] : "0", *frames]
    end

    def message_of(error)
      Thread.handle_interrupt(AT_ONCE) { utf8("#{error.message}") }
    rescue Exception
      "(its message cannot be had: asking for it raised another exception)"
    end

    def frames_of(error)
      frames = BACKTRACE_OF.bind_call(error)
      frames = [] unless Array === frames
      frames = frames.reject { |frame| frame.start_with?(OWN_FRAME) }
      frames.first(@most_frames).map { |frame| shortened(utf8(frame)) }
    end

    def shortened(text)
      return text if text.bytesize <= @longest_message

      cut = text.bytesize - @longest_message
      "#{text.byteslice(0, @longest_message).scrub("")} [… #{cut} bytes cut here …]"
    end

    def utf8(text)
      plain = String.new(text)
      if SEEN_AS_UTF8.include?(plain.encoding)
        plain.force_encoding(Encoding::UTF_8).scrub
      else
        plain.encode(Encoding::UTF_8, invalid: :replace, undef: :replace)
      end
    rescue EncodingError
      plain.force_encoding(Encoding::UTF_8).scrub
    end

    # The next request: a letter, its number, a path and code. Nil when the host has hung up.
    def receive
      UNREAD << REQUESTS.readpartial(READ_BYTES, PIECE) until (request = take_request)
      request
    rescue EOFError
      nil
    end

    # After the letter and the number come the sizes of both texts, then the texts.
    def take_request
      return if UNREAD.bytesize < HEADER_BYTES

      letter, number, path, code = UNREAD.unpack("aN3")
      return if UNREAD.bytesize < HEADER_BYTES + path + code

      UNREAD.slice!(0, HEADER_BYTES)
      [letter, number, UNREAD.slice!(0, path), UNREAD.slice!(0, code)]
    end

    # The number of the request, that of the fields, their sizes, then the fields.
    def reply(number, fields)
      REPLIES.write(fields.size == 2 ? pair(number, *fields) : frame(number, fields))
    end

    def frame(number, fields)
      form = "N#{fields.size + 2}#{"a*" * fields.size}"
      [number, fields.size, *fields.map(&:bytesize), *fields].pack(form)
    end

    # The same for two fields, as most replies have: there is less to do.
    def pair(number, kind, text)
      [number, 2, kind.bytesize, text.bytesize, kind, text].pack("N4a*a*")
    end

    # The main thread: ends everything when the host is gone, whatever is being evaluated.
    def watch
      HOST_IS_THERE.wait(IO::PRIORITY, nil)
      end_all
    rescue SignalException => signal
      end_all if HOST_IS_THERE.wait(IO::PRIORITY, 0)
      Signal.trap(signal.signo, "SYSTEM_DEFAULT")
      Process.kill(signal.signo, PID)
    ensure
      Process.exit!(1)
    end

    # With all that evaluated code has started, in the group that the host has made for it.
    def end_all
      Process.kill(:KILL, Process.getpgrp == PID ? 0 : PID)
    end
  end
end
Object.send(:private_constant, :ParlorWorker)

$0 = "parlor-ruby"
ParlorWorker.main
